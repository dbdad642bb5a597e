"""How fast the host's processor runs.

A core of a virtual machine may run at half of its speed for seconds at a time, while the other
hardware thread of the same physical core works for someone else. On the host of an H200 each of 16
cores was slow for 28 to 84 % of the time, and all of them at once for 5 %. So times that depend on
the host are taken while it runs at full speed.
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

FULL_SPEED = 1.1  # at most this many times the least time that the work took
MOST_CORES = 16  # tried in search of full speed, for 0.1 to 0.6 ms each
REMEMBERED_S = 120.0  # limited, so that a clock that the host cannot sustain is forgotten again


class HostSpeed:
    """How long a fixed piece of work takes the host.

    Args:
        now: The host's clock, in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        # Times of the work, ascending: one that is older and longer than another can never be the
        # least.
        self._least: deque[tuple[float, float]] = deque()

    @property
    def fastest(self) -> float:
        """The least seconds that the work took in the last `REMEMBERED_S` seconds."""
        return self._least[0][1] if self._least else math.inf

    def seconds(self) -> float:
        """Seconds that the work takes now: the least of three tries, as one may be interrupted."""
        taken = min(self._once() for _ in range(3))
        now = self._now()
        while self._least and self._least[-1][1] >= taken:
            self._least.pop()
        self._least.append((now, taken))
        while self._least[0][0] < now - REMEMBERED_S:
            self._least.popleft()
        return taken

    def seek(self) -> float:
        """As `seconds`, after moving the thread to a core at full speed if one is found."""
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
        """Whether a time of the work is that of full speed."""
        return seconds <= FULL_SPEED * self.fastest

    def _once(self) -> float:
        begin = self._now()
        _work_of_the_host()
        return self._now() - begin


def _other_cores() -> list[int]:
    """The cores that the calling thread may run on, in random order; empty except on Linux."""
    cores = list(_allowed())
    random.shuffle(cores)
    return cores


def _allowed() -> set[int]:
    if sys.platform.startswith("linux"):
        with suppress(OSError):  # a sandbox may forbid the question
            return os.sched_getaffinity(0)
    return set()


def _move_to(core: int) -> None:
    """Moves the thread, and lifts the restriction at once, which new threads would inherit."""
    allowed = _allowed()
    if sys.platform.startswith("linux") and allowed:
        # A sandbox may forbid it, or the core may be gone: then the thread stays where it is.
        with suppress(OSError):
            try:
                os.sched_setaffinity(0, {core})
            finally:  # also if Ctrl-C comes between the two
                os.sched_setaffinity(0, allowed)


def _work_of_the_host() -> None:
    sum(range(10_000))


# One for all workloads, because a slow phase may be longer than the calls of one of them.
OF_THIS_PROCESS = HostSpeed(time.perf_counter)
