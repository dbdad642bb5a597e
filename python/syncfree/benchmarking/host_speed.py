"""How fast the host's processor runs.

That of a virtual machine may run at another speed for seconds at a time: 1.4 to 1.7 times as slow
on the hosts of some GPUs. What the host decides is measured at its full speed.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable

FULL_SPEED = 1.15  # of the least time that the work took
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

    def is_full(self, seconds: float) -> bool:
        """Whether it took hardly longer than at the fastest."""
        return seconds <= FULL_SPEED * self.fastest

    def _once(self) -> float:
        begin = self._now()
        _work_of_the_host()
        return self._now() - begin


def _work_of_the_host() -> None:
    sum(range(10_000))


# One for all workloads: a slow time may be longer than the calls of one of them.
OF_THIS_PROCESS = HostSpeed(time.perf_counter)
