"""The figures of one timed call, and of a loop of calls. Uses no torch."""

from __future__ import annotations

from dataclasses import dataclass

from syncfree.timing.nvml import Reading


@dataclass(frozen=True)
class Sample:
    """One timed call.

    Args:
        us: Microseconds between the events on a GPU; by the monotonic clock on a CPU.
        host_us: Microseconds until the call returned to the host.
        megahertz: Effective clock during the call; None below about 50 microseconds.
        device_allocations: How often the allocator asked the driver for memory meanwhile.
        problem: Why the sample cannot count; empty for a good one.
        reading: The last reading of NVML.
    """

    us: float
    host_us: float
    megahertz: float | None = None
    device_allocations: int = 0
    problem: str = ""
    reading: Reading | None = None

    @property
    def seconds(self) -> float:
        """How long the call occupied the host or the GPU, whichever is longer."""
        return max(self.us, self.host_us) * 1e-6


@dataclass(frozen=True)
class Loop:
    """Calls back to back.

    Args:
        us: Microseconds per call until all are done; None if other work was among them.
        host_us: Microseconds until a call returned to the host.
    """

    us: float | None
    host_us: float
