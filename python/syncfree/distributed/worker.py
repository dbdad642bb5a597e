"""A rank's side of a run: claims items, sends their outcomes, waits for the next word."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch

from syncfree.distributed.busy import Busy
from syncfree.distributed.channel import Channel, Mailbox
from syncfree.distributed.claims import Claims
from syncfree.distributed.clocks import ClockSampler
from syncfree.distributed.statistics import RankReport
from syncfree.errors import RankError

POLL_SECONDS = 0.01
PULSE_SECONDS = 1.0  # between signs of life of the coordinator
START_SECONDS = 300.0  # to import torch from a slow disk and to open a CUDA context
_FLUSH_SECONDS = 0.2
_FLUSH_ITEMS = 256
_ANNOUNCED = 16  # items of a fixed share that are announced together


class Worker:
    """One rank of a run that a `Coordinator` leads.

    Call `ready`, then go through `rounds`; give every item's outcome to `settle`, or what went
    wrong to `fail`. A round's items may be taken ahead of their outcomes.

    Args:
        channel: of this run, the coordinator's.
        rank: of this process.
        world: number of ranks.
        timeout: seconds after which a coordinator without a sign of life is given up.
    """

    def __init__(self, channel: Channel, rank: int, world: int, timeout: float = math.inf) -> None:
        self.result: Any = None
        self._timeout = timeout
        self._pulse = 0
        self._looked = time.monotonic()
        self._silent = 0.0
        self._channel = channel
        self._rank = rank
        self._world = world
        self._device = torch.device("cpu")
        self._device_name = ""
        self._busy = Busy()
        self._clocks = ClockSampler(self._device)
        self._mailbox = Mailbox(channel, f"rank/{rank}")
        self._outcomes: list[tuple[int, Any]] = []
        self._flushed = time.perf_counter()
        self._costs: dict[int, float] = {}
        self._claims: Claims | None = None
        self._places: dict[int, int] = {}
        self._items, self._cost = 0, 0.0
        self._active = 0.0  # seconds of rounds that are over
        self._began: float | None = None
        self._word = 0
        self._failed = False

    def ready(self, device: torch.device, device_name: str, busy: Busy) -> None:
        """Tell the coordinator that this rank can begin.

        Args:
            device: that does the work.
            device_name: of the hardware.
            busy: in which the device's time is counted.
        """
        self._device, self._device_name, self._busy = device, device_name, busy
        self._clocks = ClockSampler(device)
        self._mailbox.post({"ready": asdict(self._report())})

    def rounds(self) -> Iterator[Iterator[int | None]]:
        """Iterators of items to be done; ends when the coordinator says so, and sets `result`.

        None among the items asks to submit the items that are held before more are claimed.

        All items of one iterator must be settled before the next iterator is asked for.

        Raises:
            RankError: the coordinator gives no sign of life.
            torch.distributed.DistError: the store is gone, and with it the coordinator.
        """
        while True:
            word = self._channel.read(f"word/{self._word}")
            if word is None:
                self._look_for_coordinator()
                time.sleep(POLL_SECONDS)
                continue
            if "end" in word:
                self.result = word["end"]
                self._mailbox.post({"goodbye": True})
                return
            number = self._word
            self._word += 1
            if self._failed or self._rank in word["lost"]:
                continue
            self._began = time.perf_counter()
            yield self._taken(word, number)
            for suspect in self._suspects(word, number):
                yield iter((suspect,))
            self._flush()
            report = self._report()
            self._active, self._began = report.active_seconds, None
            self._mailbox.post({"idle": number, "report": asdict(report)})

    def settle(self, item: int, outcome: Any) -> None:
        """Send the outcome of an item, of JSON's types; several travel together."""
        self._outcomes.append((item, outcome))
        self._items += 1
        self._cost += self._costs[item]
        if self._claims is not None:
            self._claims.done(self._places[item])
        since = time.perf_counter() - self._flushed
        if since > _FLUSH_SECONDS or len(self._outcomes) >= _FLUSH_ITEMS:
            self._clocks.sample()
            self._flush()

    def fail(self, error: BaseException) -> None:
        """Say why this rank cannot go on; its items go to others, and `rounds` has no more."""
        self._failed = True
        self._flush()
        self._mailbox.post({"failed": f"{type(error).__name__}: {error}"})

    def _look_for_coordinator(self) -> None:
        since = time.monotonic() - self._looked
        if since < PULSE_SECONDS:
            return
        self._looked += since
        before, self._pulse = self._pulse, self._channel.add("pulse", 0)
        # One long pause is not the coordinator's: this process was stopped.
        self._silent = self._silent + min(since, self._timeout / 2) if self._pulse == before else 0
        timeout = self._timeout if self._pulse else max(START_SECONDS, self._timeout)
        if self._silent > timeout:
            raise RankError({0: f"stuck: the others heard nothing from it for {timeout:g} s"})

    def _taken(self, word: dict[str, Any], number: int) -> Iterator[int | None]:
        items: list[int] = word["items"]
        self._costs = dict(zip(items, word["costs"], strict=True))
        self._claims = None
        if word["shares"] is not None:
            share: list[int] = word["shares"][self._rank]
            for begin in range(0, len(share), _ANNOUNCED):
                yield from self._announced(share[begin : begin + _ANNOUNCED])
            return
        self._places = {item: place for place, item in enumerate(items)}
        self._claims = Claims(self._channel, f"round/{number}", word["costs"], self._world)
        while chunk := self._claims.take():
            yield from self._announced([items[place] for place in chunk])
            if self._claims.holds_enough():
                yield None

    def _suspects(self, word: dict[str, Any], number: int) -> Iterator[int]:
        """Items that may have killed a rank, one by one."""
        items: list[int] = word["suspects"]
        costs: list[float] = word["suspect_costs"]
        self._flush()
        self._costs = dict(zip(items, costs, strict=True))
        self._claims = None
        claims = Claims(self._channel, f"suspects/{number}", costs, self._world, divisor=math.inf)
        while chunk := claims.take():
            yield from self._announced([items[place] for place in chunk])
            self._flush()

    def _announced(self, items: list[int]) -> Iterator[int]:
        # So that the coordinator knows what a rank that dies was holding.
        self._mailbox.post({"claimed": items})
        yield from items

    def _flush(self) -> None:
        if self._outcomes:
            self._mailbox.post({"done": self._outcomes, "report": asdict(self._report())})
        self._outcomes = []
        self._flushed = time.perf_counter()

    def _report(self) -> RankReport:
        under_way = 0.0 if self._began is None else time.perf_counter() - self._began
        return RankReport(
            rank=self._rank,
            device=str(self._device),
            device_name=self._device_name,
            host=socket.gethostname(),
            items=self._items,
            cost=self._cost,
            active_seconds=self._active + under_way,
            busy_seconds=self._busy.work.union,
            transfer_seconds=self._busy.transfer.union,
            clock_mhz=self._clocks.mhz,
            throttled=self._clocks.throttled,
        )
