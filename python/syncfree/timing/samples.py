"""The data of a timer: the samples of its regions, and what a reader must know about them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Kind = Literal["compute", "h2d", "d2h"]

# csrc/runtime/region_sample.h
_FIRST, _CAPTURED, _HOST_CLOCK, _PROBED, _QUEUED = 1, 2, 4, 8, 16


@dataclass(frozen=True)
class Sample:
    """One execution of a region. Times are in microseconds; None means unknown.

    Starts are on one time axis, that of ``time.perf_counter``, with which GPU time is aligned when
    a timer first uses a device. Without a GPU the GPU times are the host's.

    Attributes:
        name: The region's name.
        kind: ``"compute"``, ``"h2d"`` or ``"d2h"``.
        sequence: The region's number among all of the timer, in the order in which they began.
        parent: `sequence` of the region around it on its thread; 0 if it is an outermost one.
        depth: How many regions are around it.
        thread: `threading.get_ident` of the thread that began it.
        device: Index of the GPU; -1 without one.
        stream: The driver's handle of the stream.
        gpu_us: GPU time from the beginning to the end on the stream, without the time that two
            events take by themselves; for replays of a CUDA graph, that time is included.
        gpu_start_us: When the GPU began.
        gpu_gap_us: GPU time since the end of the previous region on the stream that has the same
            parent; the GPU was idle, or busy with work outside of any region. Also without the time
            that two events take.
        host_enqueue_us: Host time in the block, for its Python code and its launches.
        host_start_us: When the host began.
        host_gap_us: Host time since the end of the previous region on the thread that has the same
            parent.
        mhz: Effective clock of the SM that took the stamps; only for stamped regions from 50 us on.
        nvml_mhz: Clock of the SMs that NVML reported nearest in time; only with ``nvml=True``.
        watts: Power draw; only with ``nvml=True``.
        celsius: Temperature of the chip; only with ``nvml=True``.
        throttle: What held the clock down, in words, or nothing; only with ``nvml=True``.
        bytes: How many bytes were moved, as given for the region.
        first: Whether it is the first sample of its name.
        captured: Whether it is a replay of a CUDA graph, for which the host has no times.
        host_clock: Whether it was timed by the host's clock, without a GPU.
        flags: The flags from `syncfree.timing.verdicts`: cold, first, launch_bound, ramp,
            throttled, captured.
        queued: Whether the GPU was still busy with earlier work when the host reached the end of
            the block; only for probed samples.
    """

    name: str
    kind: Kind = "compute"
    sequence: int = 1
    parent: int = 0
    depth: int = 0
    thread: int = 0
    device: int = 0
    stream: int = 0
    gpu_us: float = 0.0
    gpu_start_us: float = 0.0
    gpu_gap_us: float | None = None
    host_enqueue_us: float | None = None
    host_start_us: float | None = None
    host_gap_us: float | None = None
    mhz: float | None = None
    bytes: int | None = None
    first: bool = False
    captured: bool = False
    host_clock: bool = False
    queued: bool | None = None
    flags: tuple[str, ...] = ()
    nvml_mhz: float | None = None
    watts: float | None = None
    celsius: float | None = None
    throttle: tuple[str, ...] | None = None

    def as_dict(self) -> dict[str, Any]:
        """The fields as plain values for JSON."""
        throttle = None if self.throttle is None else list(self.throttle)
        return {**asdict(self), "flags": list(self.flags), "throttle": throttle}


@dataclass(frozen=True)
class History:
    """The last samples of a region, with totals over all samples that there ever were.

    Attributes:
        name: The region's name.
        kind: ``"compute"``, ``"h2d"`` or ``"d2h"``.
        count: How many samples there were.
        total_us: The sum of their GPU times.
        min_us: The smallest GPU time.
        samples: The samples that are kept, in the order in which they began.
    """

    name: str
    kind: Kind
    count: int
    total_us: float
    min_us: float
    samples: tuple[Sample, ...]

    @classmethod
    def of(cls, samples: list[Sample]) -> History:
        """The history of samples of one name and kind, all of them kept.

        Raises:
            ValueError: There is no sample, or they differ in name or kind.

        Example:
            >>> History.of([Sample("step", gpu_us=2.0), Sample("step", gpu_us=3.0)]).total_us
            5.0
        """
        if len({(each.name, each.kind) for each in samples}) != 1:
            raise ValueError("History.of takes samples of one name and kind, at least one of them")
        times = [each.gpu_us for each in samples]
        ordered = tuple(sorted(samples, key=lambda each: each.sequence))
        name, kind = samples[0].name, samples[0].kind
        return cls(name, kind, len(samples), sum(times), min(times), ordered)


@dataclass(frozen=True)
class Recording:
    """The state of a timer at one moment.

    Attributes:
        histories: One for each name and kind that has samples.
        clock: Which clock the times are from: ``"CUDA events"``, or the host's clock and why.
        pending: Regions that have ended on the host but not yet on the GPU.
        dropped: Regions that were given up because all slots were taken.
        skipped: Regions that could not be timed: on the legacy stream while another stream was
            captured, or in a forked child.
        lost: Regions whose events failed, or that were never ended.
        problem: Why the last of these was lost, in the driver's words.
        bracket_us: For each device, the time that two events take by themselves, which was
            subtracted from each time between events; None if it could not be measured.
        remarks: Other facts that a reader has to know, as sentences.
    """

    histories: tuple[History, ...]
    clock: str = "CUDA events"
    pending: int = 0
    dropped: int = 0
    skipped: int = 0
    lost: int = 0
    problem: str = ""
    bracket_us: dict[int, float | None] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @property
    def notes(self) -> list[str]:
        """The facts that a reader of the figures has to know, as sentences."""
        lines = [] if self.clock == "CUDA events" else [f"Times are of {self.clock}."]
        counts = (
            (self.pending, "had not ended on the GPU yet"),
            (self.dropped, "were dropped because all slots were taken (raise `capacity`)"),
            (self.skipped, "could not be timed (legacy stream during a capture, or forked child)"),
            (self.lost, f"were lost: {self.problem}"),
        )
        lines += [_of_regions(count, what) for count, what in counts if count]
        lines += [
            f"Times on GPU {device} contain what two events take by themselves, a few "
            "microseconds: it could not be measured."
            for device, us in self.bracket_us.items()
            if us is None
        ]
        return [*lines, *self.remarks]


def _of_regions(count: int, what: str) -> str:
    if count == 1:
        return f"1 region {what.replace('were', 'was', 1)}."
    return f"{count} regions {what}."


def from_runtime(histories: list[tuple[Any, ...]]) -> tuple[History, ...]:
    """The histories that `_runtime.RegionTimer.histories` returned, except those without a sample.

    Args:
        histories: A tuple (name, kind, count, total, least, samples) for each.
    """
    return tuple(
        History(
            name,
            kind,
            count,
            total,
            least,
            tuple(sorted((_sample(name, kind, raw) for raw in samples), key=_sequence)),
        )
        for name, kind, count, total, least, samples in histories
        if count
    )


def _sequence(sample: Sample) -> tuple[int, float]:
    return sample.sequence, sample.gpu_start_us  # replays of one captured region share a sequence


def _sample(name: str, kind: Kind, raw: tuple[Any, ...]) -> Sample:
    """A sample from the fields that `as_tuple` in csrc/runtime/timer_type.cpp returns."""
    sequence, parent, thread, stream, device, depth, size, flags, *times = raw
    host_start, host_enqueue, host_gap, gpu_start, gpu, gpu_gap, mhz = times
    return Sample(
        name=name,
        kind=kind,
        sequence=sequence,
        parent=parent,
        depth=depth,
        thread=thread,
        device=device,
        stream=stream,
        gpu_us=gpu,
        gpu_start_us=gpu_start,
        gpu_gap_us=gpu_gap,
        host_enqueue_us=host_enqueue,
        host_start_us=host_start,
        host_gap_us=host_gap,
        mhz=mhz,
        bytes=size,
        first=bool(flags & _FIRST),
        captured=bool(flags & _CAPTURED),
        host_clock=bool(flags & _HOST_CLOCK),
        queued=bool(flags & _QUEUED) if flags & _PROBED else None,
    )
