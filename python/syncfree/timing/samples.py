"""What a timer hands over: the samples of its regions, and what stands behind their times."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Kind = Literal["compute", "h2d", "d2h"]

# csrc/runtime/region_sample.h
_FIRST, _CAPTURED, _HOST_CLOCK, _PROBED, _QUEUED = 1, 2, 4, 8, 16


@dataclass(frozen=True)
class Sample:
    """One execution of a region. Times are in microseconds; None is what is not known.

    Starts are on one axis, that of ``time.perf_counter``, to which GPU time is aligned when a timer
    first meets a device. Without a GPU the GPU times are the host's.

    Attributes:
        name: Of the region.
        kind: ``"compute"``, ``"h2d"`` or ``"d2h"``.
        sequence: Counts all regions of a timer in the order in which they began.
        parent: `sequence` of the region around it on its thread; 0 of an outermost one.
        depth: How many regions are around it.
        thread: `threading.get_ident` of the thread that began it.
        device: Index of the GPU; -1 without one.
        stream: The driver's handle of the stream.
        gpu_us: GPU time from its beginning to its end on the stream, without what two events take
            by themselves; of replays of a CUDA graph, with it.
        gpu_start_us: When the GPU began.
        gpu_gap_us: GPU time since the region before it on the stream, with the same parent, ended:
            the GPU was idle, or busy with work outside of any region. Without what two events take,
            likewise.
        host_enqueue_us: Host time in the block: of its Python code and its launches.
        host_start_us: When the host began.
        host_gap_us: Host time since the region before it on the thread, with the same parent.
        mhz: Effective clock of the SM that took the stamps; only of stamped regions from 50 us on.
        nvml_mhz: Clock of the SMs that NVML reported nearest in time; only with ``nvml=True``.
        watts: Power draw, likewise.
        celsius: Temperature of the chip, likewise.
        throttle: What held the clock down, in words, likewise; empty for nothing.
        bytes: How much was moved, as the region said.
        first: It is the first one of its name.
        captured: It is a replay of a CUDA graph, for which the host has no times.
        host_clock: It was timed by the host's clock, without a GPU.
        flags: What `syncfree.timing.verdicts` found, by name: cold, first, launch_bound, ramp,
            throttled, captured.
        queued: Whether the GPU was still busy with earlier work when the host came to the end of
            the block; only of probed samples.
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
        """The fields as plain values, as JSON has them."""
        throttle = None if self.throttle is None else list(self.throttle)
        return {**asdict(self), "flags": list(self.flags), "throttle": throttle}


@dataclass(frozen=True)
class History:
    """A region's last samples, with totals of all there ever were.

    Attributes:
        name: Of the region.
        kind: ``"compute"``, ``"h2d"`` or ``"d2h"``.
        count: How many samples there were.
        total_us: The sum of their GPU times.
        min_us: The smallest GPU time.
        samples: Those that are kept, in the order in which they began.
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
            ValueError: There is none, or they differ in name or kind.

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
    """All that a timer knows at one moment.

    Attributes:
        histories: One for each name and kind that has samples.
        clock: Which clock the times are from: ``"CUDA events"``, or the host's clock and why.
        pending: Regions that have ended on the host and not yet on the GPU.
        dropped: Regions that were given up because all slots were taken.
        skipped: Regions that could not be timed: on the legacy stream while another one was
            captured, or in a forked child.
        lost: Regions whose events failed, or that were never ended.
        problem: Of the last one lost, in the driver's words.
        bracket_us: What two events take by themselves, by device, which was taken off each time
            between events. None where it could not be measured.
        remarks: What else a reader has to know, as sentences.
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
        """What a reader of the figures has to know, as sentences."""
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
    """Histories as `_runtime.RegionTimer.histories` gives them, but those without a sample.

    Args:
        histories: (name, kind, count, total, least, samples) of each.
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
    """From the fields of csrc/runtime/timer_type.cpp's as_tuple."""
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
