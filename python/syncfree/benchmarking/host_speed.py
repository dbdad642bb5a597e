"""How fast the host's processor runs.

That of a virtual machine may run at another speed for a second at a time: 1.4 to 1.7 times as slow
on the hosts of some GPUs. What the host decides is measured at its full speed.
"""

from __future__ import annotations

import math

from syncfree.benchmarking.backend import Clock

FULL_SPEED = 1.15  # of the least time that the work took


class HostSpeed:
    """How long a piece of the host's work takes that is always the same.

    Args:
        clock: Of the host.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
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
        begin = self._clock.now()
        _work_of_the_host()
        return self._clock.now() - begin


def _work_of_the_host() -> None:
    sum(range(10_000))
