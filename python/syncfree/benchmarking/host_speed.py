"""How fast the host's processor runs.

A core of a virtual machine may run at half of its speed for seconds at a time, while its twin, the
other thread of the same physical core, works for somebody else. On the host of an H200 each of 16
cores was slow in 28 to 84 % of the time, all of them at once in 5 %. What the host decides is
measured at full speed.
"""

from __future__ import annotations

import math
import os
import random
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

FULL_SPEED = 1.1  # of the least time that the work took
MOST_CORES = 16  # looked at for one of full speed: 0.1 to 0.6 ms each
REMEMBERED_S = 120.0  # so that a clock that nothing can sustain is not waited for for ever


class HostSpeed:
    """How long a piece of the host's work takes that is always the same.

    Args:
        now: The host's clock, in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        # What took longer and is older than another can never be the least.
        self._least: deque[tuple[float, float]] = deque()

    @property
    def fastest(self) -> float:
        """The least seconds of the last minutes."""
        return self._least[0][1] if self._least else math.inf

    def seconds(self) -> float:
        """Now; interruptions go for the least of three."""
        taken = min(self._once() for _ in range(3))
        now = self._now()
        while self._least and self._least[-1][1] >= taken:
            self._least.pop()
        self._least.append((now, taken))
        while self._least[0][0] < now - REMEMBERED_S:
            self._least.popleft()
        return taken

    def seek(self) -> float:
        """As `seconds`, on a core of full speed if one is found; the calling thread moves there."""
        taken = self.seconds()
        if self.is_full(taken):
            return taken
        seen = {}
        for core in _other_cores()[:MOST_CORES]:
            _move_to(core)
            seen[core] = taken = self.seconds()
            if self.is_full(taken):
                return taken
        if not seen:
            return taken
        _move_to(min(seen, key=seen.__getitem__))
        return self.seconds()

    def is_full(self, seconds: float) -> bool:
        """Whether it took hardly longer than at the fastest."""
        return seconds <= FULL_SPEED * self.fastest

    def _once(self) -> float:
        begin = self._now()
        _work_of_the_host()
        return self._now() - begin


def _other_cores() -> list[int]:
    """Those that the calling thread may move to, in another order each time; none but on Linux."""
    cores = list(_allowed())
    random.shuffle(cores)
    return cores


def _allowed() -> set[int]:
    if sys.platform.startswith("linux"):
        with suppress(OSError):  # a sandbox may forbid to ask
            return os.sched_getaffinity(0)
    return set()


def _move_to(core: int) -> None:
    """The thread may run anywhere again at once: threads that it starts inherit where it may."""
    allowed = _allowed()
    if sys.platform.startswith("linux") and allowed:
        # A sandbox may forbid it, or the core is gone by now: then the thread stays where it is.
        with suppress(OSError):
            try:
                os.sched_setaffinity(0, {core})
            finally:  # also if Ctrl-C comes between the two
                os.sched_setaffinity(0, allowed)


def _work_of_the_host() -> None:
    sum(range(10_000))


# One for all workloads: a slow time may be longer than the calls of one of them.
OF_THIS_PROCESS = HostSpeed(time.perf_counter)
