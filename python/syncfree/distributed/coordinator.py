"""Leads a run: hands out rounds of items, collects outcomes, and re-issues what lost ranks held."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from syncfree.distributed.channel import Channel, Mailbox
from syncfree.distributed.policy import (
    TIMEOUT_SECONDS,
    Schedule,
    cost_shares,
    equal_shares,
    order_by_cost,
)
from syncfree.distributed.statistics import FleetStatistics, RankReport, compare_ranks
from syncfree.distributed.worker import POLL_SECONDS, PULSE_SECONDS, START_SECONDS

_GOODBYE_SECONDS = 10.0
_MOST_LOSSES = 2


@dataclass(frozen=True)
class Settled:
    """The outcome of an item; each item has one at most."""

    rank: int
    item: int
    outcome: Any


@dataclass(frozen=True)
class Lost:
    """A rank that died, failed or was given up, with what it held."""

    rank: int
    reason: str
    items: tuple[int, ...]


Event = Settled | Lost


@dataclass
class _Rank:
    """What is known of a rank that is not lost."""

    mailbox: Mailbox
    report: RankReport | None = None
    heard: float = 0.0
    idle: int = -1  # the last round that it has finished
    claimed: set[int] = field(default_factory=set)


class Coordinator:
    """Has a list of items done by the ranks that survive.

    A round is a list of items that ranks claim. When all remaining ranks are idle, the items
    without an outcome make the next round. So others do whatever a lost rank held, at whichever
    step it was lost.

    Items that a rank held when it was lost may have killed it. These suspects are done one by one,
    after all others, and given up when a second rank is lost with them.

    Args:
        channel: of this run, that of its workers.
        world: number of ranks.
        costs: of all items.
        schedule: `dynamic`, or fixed shares for the first round: `equal` numbers or equal `cost`.
        timeout: seconds after which a rank that holds items and sends nothing is given up.
        deaths: ranks that have died since the last call, with the reason.
        give_up: called with a rank that is stuck.
        checkpoint: called many times a second; what it raises ends the run.
        clock: seconds, for tests.
    """

    def __init__(
        self,
        channel: Channel,
        world: int,
        costs: Sequence[float],
        *,
        schedule: Schedule = "dynamic",
        timeout: float = TIMEOUT_SECONDS,
        deaths: Callable[[], Iterable[tuple[int, str]]] = tuple,
        give_up: Callable[[int], None] = lambda rank: None,
        checkpoint: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.unfinished: dict[int, str] = {}
        """Items without an outcome after the run, with the reason."""
        self._channel = channel
        self._costs = costs
        self._schedule = schedule
        self._timeout = timeout
        self._deaths = deaths
        self._give_up = give_up
        self._checkpoint = checkpoint
        self._clock = clock
        self._ranks = {rank: _Rank(Mailbox(channel, f"rank/{rank}")) for rank in range(world)}
        self._reports = [RankReport(rank, "", "", "") for rank in range(world)]
        self._lost: dict[int, str] = {}
        self._losses: Counter[int] = Counter()
        self._word = 0
        self._world = world
        self._pending: set[int] = set()
        self._reissued = 0
        self._startup = 0.0
        self._seconds = 0.0
        self._pulsed = -math.inf

    def run(self, items: Iterable[int]) -> Iterator[Event]:
        """Have these items done. Iterate over all events, then call `end`.

        Args:
            items: those of `costs` that are to be done.
        """
        self._pending = set(items)
        start = self._clock()
        yield from self._until(self._all_ready, max(START_SECONDS, self._timeout))
        begin = self._clock()
        self._startup = begin - start
        while self._pending and self._ranks:
            if self._word:
                self._reissued += len(self._pending)
            self._publish_round()
            yield from self._until(self._all_idle, self._timeout)
        self._seconds = self._clock() - begin
        for item in self._pending:
            self.unfinished[item] = "no rank is left to do it"

    @property
    def awaited(self) -> list[int]:
        """Ranks that have not reported that they are ready."""
        return [rank for rank, each in self._ranks.items() if each.report is None]

    def end(self, result: Any = None) -> None:
        """Release the workers and give a result to each of them; waits a little for them.

        Args:
            result: of JSON's types.
        """
        self._channel.publish(f"word/{self._word}", {"end": result})
        latest = self._clock() + _GOODBYE_SECONDS
        # A store that lives in this process must not vanish before they have read the word.
        while self._ranks and self._clock() < latest:
            gone = {rank for rank, _ in self._deaths()}
            for each in tuple(self._ranks):
                messages = list(self._ranks[each].mailbox.collect())
                failed = [message["failed"] for message in messages if "failed" in message]
                if failed:
                    self._lost[each] = failed[0]
                if failed or each in gone or any("goodbye" in message for message in messages):
                    del self._ranks[each]
            time.sleep(POLL_SECONDS)
        # A store may outlive many runs. The words stay if a lost rank may come back and read them.
        if not self._ranks and not self._lost:
            for number in range(self._word + 1):
                self._channel.forget(f"word/{number}")

    def statistics(self, restored: int = 0) -> FleetStatistics:
        """How the run went.

        Args:
            restored: number of items that did not have to be done.
        """
        return compare_ranks(
            self._reports,
            self._seconds,
            schedule=self._schedule,
            startup_seconds=self._startup,
            lost=self._lost,
            reissued=self._reissued,
            restored=restored,
        )

    def _publish_round(self) -> None:
        suspects = [item for item in sorted(self._pending) if self._losses[item]]
        pending = sorted(self._pending.difference(suspects))
        costs = [self._costs[item] for item in pending]
        shares: list[list[int]] | None = None
        if self._word == 0 and self._schedule != "dynamic":
            alive = sorted(self._ranks)
            divided = (
                equal_shares(len(pending), len(alive))
                if self._schedule == "equal"
                else cost_shares(costs, len(alive))
            )
            shares = [[] for _ in range(self._world)]
            for rank, share in zip(alive, divided, strict=True):
                shares[rank] = [pending[place] for place in share]
        order = order_by_cost(costs)
        word = {
            "items": [pending[place] for place in order],
            "costs": [costs[place] for place in order],
            "shares": shares,
            "suspects": suspects,
            "suspect_costs": [self._costs[item] for item in suspects],
            "lost": list(self._lost),
        }
        self._channel.publish(f"word/{self._word}", word)
        self._word += 1
        for each in self._ranks.values():
            each.heard = self._clock()

    def _until(self, done: Callable[[], bool], timeout: float) -> Iterator[Event]:
        begin = turn = self._clock()
        while not done():
            self._checkpoint()
            last, turn = turn, self._clock()
            if turn - self._pulsed >= PULSE_SECONDS:
                self._pulsed = turn
                self._channel.add("pulse", 1)
            # A stop of this process, as by Ctrl-Z, stops the ranks too: it is no silence of theirs.
            stopped = max(0.0, turn - last - timeout / 2)
            begin += stopped
            for each in self._ranks.values():
                each.heard += stopped
            heard = False
            for rank in tuple(self._ranks):
                for event in self._collect(rank):
                    heard = True
                    yield event
            # Deaths are looked up before the mailbox is emptied, so that no last message is missed.
            for rank, reason in tuple(self._deaths()):
                yield from self._collect(rank)
                yield from self._lose(rank, reason)
            for rank, each in tuple(self._ranks.items()):
                silent = turn - max(each.heard, begin)
                if silent > timeout and not self._waits(each):
                    self._give_up(rank)
                    yield from self._collect(rank)
                    reason = f"stuck: nothing came from it for {timeout:g} s"
                    yield from self._lose(rank, reason)
            if not heard:
                time.sleep(POLL_SECONDS)

    def _collect(self, rank: int) -> Iterator[Event]:
        if rank not in self._ranks:
            return
        each = self._ranks[rank]
        for message in each.mailbox.collect():
            each.heard = self._clock()
            if "ready" in message:
                each.report = self._reports[rank] = RankReport.from_json(message["ready"])
            elif "claimed" in message:
                each.claimed.update(message["claimed"])
            elif "done" in message:
                self._reports[rank] = RankReport.from_json(message["report"])
                for item, outcome in message["done"]:
                    each.claimed.discard(item)
                    if item in self._pending:
                        self._pending.remove(item)
                        yield Settled(rank, item, outcome)
            elif "idle" in message:
                each.idle = message["idle"]
                self._reports[rank] = RankReport.from_json(message["report"])
            elif "failed" in message:
                yield from self._lose(rank, message["failed"])
                return

    def _lose(self, rank: int, reason: str) -> tuple[Lost, ...]:
        each = self._ranks.pop(rank, None)
        if each is None:
            return ()
        self._lost[rank] = reason
        held = sorted(each.claimed & self._pending)
        self._losses.update(held)
        for item in held:
            if self._losses[item] >= _MOST_LOSSES:
                self._pending.remove(item)
                self.unfinished[item] = f"{_MOST_LOSSES} ranks were lost while they had it"
        return (Lost(rank, reason, tuple(held)),)

    def _all_ready(self) -> bool:
        return all(each.report is not None for each in self._ranks.values())

    def _all_idle(self) -> bool:
        return all(each.idle >= self._word - 1 for each in self._ranks.values())

    def _waits(self, each: _Rank) -> bool:
        """Whether the rank waits for the coordinator, so that it may be silent."""
        if self._word == 0:
            return each.report is not None
        return each.idle >= self._word - 1
