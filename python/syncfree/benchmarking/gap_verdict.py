"""Why the first call after a pause is slow, decided from the figures of a sweep. Uses no torch.

``include/syncfree/idle_gap/verdict.h`` has the same rules and texts for C++ programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from syncfree.timing.verdicts import duration

SLOWER = 1.15
MAIN_SHARE = 0.5  # a cause that explains this share of the time lost is the main cause
LOW_CLOCK = 0.9

Cause = Literal[
    "none", "host launch", "allocator", "clock ramp", "memory", "gpu", "waits", "cpu", "unexplained"
]


@dataclass(frozen=True)
class GapPoint:
    """Medians of the first calls after one gap. Times are microseconds.

    Attributes:
        gap: Seconds of idleness before the call.
        plain_us: Time between the events, without a gate.
        plain_mad_us: Median absolute deviation of `plain_us`.
        host_us: Time until the plain call returned.
        gated_us: Time between the events behind a gate; None if there is none.
        megahertz: Clock of the multiprocessors; None if it is unknown.
        device_allocations: How often the allocator asked the driver for memory in a plain call;
            None if it was not counted.
        n: The number of plain calls.
    """

    gap: float
    plain_us: float
    plain_mad_us: float
    host_us: float
    gated_us: float | None
    megahertz: float | None
    device_allocations: float | None
    n: int


@dataclass(frozen=True)
class GapVerdict:
    """The main cause.

    Attributes:
        cause: The cause in a word or two.
        text: An explanation with its figures, and what to do.
    """

    cause: Cause
    text: str

    def __str__(self) -> str:
        return self.text if self.cause == "none" else f"{self.cause}: {self.text}"


def judge_gaps(
    points: Sequence[GapPoint], *, kind: Literal["cuda", "cpu"], not_gateable: str = ""
) -> GapVerdict:
    """The main cause of the slowest first call that is slower by more than calls vary.

    Args:
        points: The figures of each gap, the shortest gap first.
        kind: The kind of device.
        not_gateable: Why the call cannot be enqueued behind a gate.

    Example:
        >>> from syncfree.benchmarking.gap_verdict import GapPoint, judge_gaps
        >>> judge_gaps(
        ...     [
        ...         GapPoint(0.0, 150, 5, 180, 90, 1980, 0, 5),
        ...         GapPoint(1.0, 550, 20, 530, 90, 1980, 0, 5),
        ...     ],
        ...     kind="cuda",
        ... ).cause
        'host launch'
    """
    base = points[0]
    slower = [each for each in points[1:] if each.plain_us > SLOWER * base.plain_us]
    if not slower:
        return GapVerdict(
            "none", f"no gap makes the first call slower than back to back{_launches(base)}"
        )
    certain = [
        each
        for each in slower
        if each.plain_us - base.plain_us > each.plain_mad_us + base.plain_mad_us
    ]
    worst = max(certain or slower, key=lambda each: each.plain_us)
    lost = worst.plain_us - base.plain_us
    head = f"after {worst.gap:g} s a call takes {duration(worst.plain_us)} instead of "
    head += duration(base.plain_us)
    if not certain:
        return GapVerdict(
            "unexplained",
            f"{head}, but calls vary by as much: by {duration(worst.plain_mad_us)} and "
            f"{duration(base.plain_mad_us)} around these medians. More repeats tell"
            f"{_launches(base)}",
        )
    if kind == "cpu":
        return GapVerdict(
            "cpu",
            f"{head}. On the CPU nothing tells caches, clock and scheduling apart",
        )
    if worst.gated_us is None or base.gated_us is None:
        why = (
            f"the call is not gateable: {not_gateable}"
            if not_gateable
            else "the host did not get through the call before the gate opened"
        )
        return GapVerdict("waits", f"{head}; it cannot be told why, as {why}")
    gpu_lost = worst.gated_us - base.gated_us
    if gpu_lost >= MAIN_SHARE * lost:
        head += f", and behind a gate {duration(worst.gated_us)} instead of "
        return _gpu_cause(points, worst, head + duration(base.gated_us))
    head += f", while the GPU's work stays at {duration(worst.gated_us)}"
    return _host_cause(base, worst, head)


def _host_cause(base: GapPoint, worst: GapPoint, head: str) -> GapVerdict:
    before, then = base.device_allocations, worst.device_allocations
    if before is not None and then is not None and then >= before + 1:
        return GapVerdict(
            "allocator",
            f"{head}: the allocator asked the driver for memory in the call. Something emptied its "
            "cache in between, or other work took it",
        )
    if worst.host_us - base.host_us >= MAIN_SHARE * (worst.plain_us - base.plain_us):
        return GapVerdict(
            "host launch",
            f"{head}: the host takes {duration(worst.host_us)} to launch it instead of "
            f"{duration(base.host_us)}. Capture a graph or fuse{_launches(base)}",
        )
    return GapVerdict(
        "unexplained",
        f"{head}, and the host takes {duration(worst.host_us)} instead of "
        f"{duration(base.host_us)}: what takes long is the way from the one to the other, as when "
        "driver or bus wake up",
    )


def _gpu_cause(points: Sequence[GapPoint], worst: GapPoint, head: str) -> GapVerdict:
    highest = max((each.megahertz for each in points if each.megahertz is not None), default=None)
    if highest is None or worst.megahertz is None:
        return GapVerdict("gpu", f"{head}: the GPU itself is slower. Its clock could not be read")
    if worst.megahertz < LOW_CLOCK * highest:
        return GapVerdict(
            "clock ramp",
            f"{head}: the clock is at {worst.megahertz:.0f} MHz, and at {highest:.0f} MHz when the "
            "GPU is kept busy",
        )
    return GapVerdict(
        "memory",
        f"{head}: the GPU itself is slower at the same clock ({worst.megahertz:.0f} MHz), as when "
        "its data have left the caches or the device's memory",
    )


def _launches(base: GapPoint) -> str:
    """The end of a verdict's text: whether launches already slow the calls back to back."""
    if base.gated_us is None or base.plain_us < SLOWER * base.gated_us:
        return ""
    return (
        f". Even back to back the host's launches hold the GPU up: {duration(base.plain_us)} for "
        f"{duration(base.gated_us)} of work"
    )
