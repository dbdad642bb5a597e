"""What one timed call gives. Knows nothing of torch."""

from __future__ import annotations

from dataclasses import dataclass

from syncfree.timing.nvml import Reading


@dataclass(frozen=True)
class Sample:
    """One timed call.

    Args:
        us: Microseconds between the events on a GPU; of the monotonic clock on a CPU.
        host_us: Microseconds until the call returned to the host.
        megahertz: Effective clock during the call; None below about 50 microseconds.
        device_allocations: Blocks that the allocator fetched from the driver meanwhile.
        problem: Why it cannot count; empty for a good one.
        reading: What NVML said last.
    """

    us: float
    host_us: float
    megahertz: float | None = None
    device_allocations: int = 0
    problem: str = ""
    reading: Reading | None = None

    @property
    def seconds(self) -> float:
        """How long it kept host or GPU."""
        return max(self.us, self.host_us) * 1e-6


@dataclass(frozen=True)
class Loop:
    """Calls back to back.

    Args:
        us: Microseconds a call until all of them are done; None if that held other work too.
        host_us: Microseconds until a call returned to the host.
    """

    us: float | None
    host_us: float
