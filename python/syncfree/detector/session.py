"""The one active tier of a process: opened by the first region, closed by the last."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from syncfree.detector.findings import Event, Recorder
from syncfree.detector.scope import Scoped, ThreadsInherit
from syncfree.errors import DetectorError

if TYPE_CHECKING:
    from syncfree.detector.regions import Region
    from syncfree.detector.tiers import Tier, TierChoice

# The regions that the running code is inside of; the outermost comes first.
_around: Scoped[tuple[Region, ...]] = Scoped("syncfree_regions", ())


class _Router(Recorder):
    """Passes an event to every region that the waiting code is inside of."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._process = os.getpid()

    def record(self, event: Event) -> None:
        # A forked child (a DataLoader's worker) inherits the patches, but belongs to no region.
        if os.getpid() != self._process:
            return
        inside = _around.get()
        for region in self._session.open_regions():
            if region.all_threads or region in inside:
                region.take(event)

    def record_for_all(self, event: Event) -> None:
        for region in self._session.open_regions():
            region.take(event, may_raise=False)

    def record_lost(self, count: int) -> None:
        for region in self._session.open_regions():
            region.report.record_lost(count)


class Session:
    """Counts the open regions and holds the tier that serves all of them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._open: tuple[Region, ...] = ()
        self._beside_tier = ExitStack()
        self.tier: Tier | None = None
        self.note = ""

    def open_regions(self) -> tuple[Region, ...]:
        """All regions of the process that are open now."""
        return self._open

    def seen(self) -> int | None:
        """How many operations on CUDA tensors the tier saw; None if it does not count them."""
        return None if self.tier is None else self.tier.seen

    def open(self, region: Region, choice: TierChoice, *, raise_at_call: bool) -> Tier:
        """Adds a region; the first one enters the tier.

        Raises:
            DetectorError: Another tier is active, or the requested one cannot work here.
        """
        with self._lock:
            is_first = self.tier is None
            if self.tier is None:
                tier = self._enter(choice, raise_at_call)
            elif choice not in ("auto", self.tier.number):
                raise DetectorError(
                    f"tier {choice} was asked for inside of a region that uses tier "
                    f"{self.tier.number}; a process has one tier at a time: use tier='auto' inside"
                )
            else:
                tier = self.tier
            if raise_at_call:
                tier.raise_at_call(True)
            if not is_first:
                tier.enter_thread()
            self._open = (*self._open, region)
            return tier

    def close(self, region: Region, *, raise_at_call: bool) -> None:
        """Removes a region; the last one leaves the tier."""
        with self._lock:
            tier = self.tier
            if tier is None or region not in self._open:
                return
            try:
                self._leave(tier, raise_at_call)
            finally:
                self._open = tuple(each for each in self._open if each is not region)
                if not self._open:
                    self._beside_tier.close()
                    self.tier = None

    def _enter(self, choice: TierChoice, raise_at_call: bool) -> Tier:
        from syncfree.detector.operators import Listening
        from syncfree.detector.tiers import open_tier

        with ExitStack() as beside:
            operators = beside.enter_context(Listening())
            tier, note = open_tier(choice, _Router(self), raise_at_call=raise_at_call)
            beside.enter_context(ThreadsInherit())
            self._beside_tier = beside.pop_all()
        self.tier = tier
        self.note = note
        if operators.missing:
            self.note = f"{note or f'tier {tier.number}'}; {operators.missing}"
        return tier

    def _leave(self, tier: Tier, raise_at_call: bool) -> None:
        try:
            drain()
        finally:
            if raise_at_call:
                tier.raise_at_call(False)
            if len(self._open) == 1:
                tier.__exit__(None, None, None)
            else:
                tier.leave_thread()


session = Session()


def drain() -> None:
    """Makes the tier record what happened so far, before the running code changes its scope."""
    tier = session.tier
    if tier is not None:
        tier.drain()


def scope_changed() -> None:
    """Tells the tier that the running code has changed its scope."""
    tier = session.tier
    if tier is not None:
        tier.note_scope()


def stop_raising() -> int:
    """Makes waits not raise at the call, until `go_on_raising` is given the returned count."""
    tier, opened = session.tier, session.open_regions()
    if tier is None:
        return 0
    count = sum(region.raises_at_call for region in _around.get() if region in opened)
    for _ in range(count):
        tier.raise_at_call(False)
    return count


def go_on_raising(count: int) -> None:
    """Undoes a `stop_raising`: waits raise at the call again if they did before it."""
    tier = session.tier
    if tier is not None:
        for _ in range(count):
            tier.raise_at_call(True)


def regions_here() -> tuple[Region, ...]:
    """The regions that the running code is inside of; the innermost comes last."""
    return _around.get()


def enter_scope(region: Region) -> None:
    """Puts the running code inside of a region from here on."""
    drain()
    _around.set((*_around.get(), region))
    scope_changed()


def leave_scope(region: Region) -> None:
    """Takes the running code out of a region from here on."""
    try:
        drain()
    finally:
        _around.set(tuple(each for each in _around.get() if each is not region))
        scope_changed()
