"""What one timed call gives. Knows nothing of torch."""

from __future__ import annotations

from dataclasses import dataclass

# nvmlClocksEventReasons of nvml.h, in words. Idle and application clocks are settings, not events.
REASONS = {
    0x004: "software power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "hardware power brake",
}
# The hardware steps in: whatever is measured meanwhile says nothing about the function. A power cap
# is what sustained work meets on a healthy machine, so it is told and not discarded.
FAULTS = 0x008 | 0x020 | 0x040 | 0x080


@dataclass(frozen=True)
class Reading:
    """What NVML said at one moment; None for what this GPU does not tell.

    Args:
        megahertz: Clock of the multiprocessors.
        watts: Power draw.
        celsius: Temperature of the chip.
        reasons: Bits of nvmlClocksEventReasons.
    """

    megahertz: float | None = None
    watts: float | None = None
    celsius: float | None = None
    reasons: int = 0


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


def reasons_in_words(bits: int) -> list[str]:
    """Names of clock event reasons, without those that are settings.

    Example:
        >>> from syncfree.benchmarking.samples import reasons_in_words
        >>> reasons_in_words(0x001 | 0x004 | 0x040)
        ['software power cap', 'hardware thermal slowdown']
    """
    return [name for bit, name in REASONS.items() if bits & bit]


@dataclass(frozen=True)
class Loop:
    """Calls back to back.

    Args:
        us: Microseconds a call until all of them are done.
        host_us: Microseconds a call until the last one returned to the host.
    """

    us: float
    host_us: float
