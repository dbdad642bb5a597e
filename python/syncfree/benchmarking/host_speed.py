"""How fast the host's processor runs.

That of a virtual machine may run at another speed for a second at a time: 1.4 to 1.7 times as slow
on the hosts of some GPUs. What the host decides is measured at its full speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

FULL_SPEED = 1.15  # of the least time that the work took


class HostSpeed:
    """How long a piece of the host's work takes that is always the same.

    One of them for a process: a slow time may last longer than all calls of one workload.

    Args:
        now: The host's clock, in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.fastest = math.inf

    def seconds(self) -> float:
        """Now; interruptions go for the least of three."""
        taken = min(self._once() for _ in range(3))
        self.fastest = min(self.fastest, taken)
        return taken

    def is_full(self, seconds: float) -> bool:
        """Whether it took hardly longer than ever."""
        return seconds <= FULL_SPEED * self.fastest

    def _once(self) -> float:
        begin = self._now()
        _work_of_the_host()
        return self._now() - begin


def _work_of_the_host() -> None:
    sum(range(10_000))
