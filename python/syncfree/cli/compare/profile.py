"""What limits a comparison, and how much it gains from overlapping its stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from syncfree.cli.compare.buffers import Reuse
from syncfree.cli.compare.stages import (
    COMPUTE,
    DECODE,
    ENQUEUE,
    MAPS,
    READ_BACK,
    UPLOAD,
    Interval,
    Spans,
    length,
)
from syncfree.distributed.busy import merge

_FULL = 0.5  # of the run; a stage that is at work for less does not limit it
_FEW_BATCHES = 8
_OF_THREADS = (DECODE, MAPS)
_SHARED = (
    "all stages share the CPU's cores: alone each would take less than here, so overlap gains less"
)

_ADVICE = {
    DECODE: "more --workers where cores are idle, or a format that decodes faster",
    ENQUEUE: "a larger --batch, so that the host has fewer calls to make",
    UPLOAD: "fewer bytes (--dtype uint8 for 8-bit images, --crop-border)",
    COMPUTE: "fewer --metrics, a GPU, or --gpus",
    READ_BACK: "leave --maps out",
    MAPS: "more --workers, or leave --maps out",
}


@dataclass(frozen=True)
class Stage:
    """One stage of a run.

    Args:
        name: of `syncfree.cli.compare.stages`.
        lanes: threads or streams that do it.
        count: pairs or batches.
        seconds: of all lanes together.
        busy_seconds: in which at least one lane was at work.
        hidden_seconds: part of `busy_seconds` in which another stage was at work too.
        alone_seconds: what it would take with nothing beside it: `seconds` divided among threads,
            or `busy_seconds` of streams, which share the GPU.
        bytes: that were moved; `None` for stages that move nothing.
    """

    name: str
    lanes: int
    count: int
    seconds: float
    busy_seconds: float
    hidden_seconds: float
    alone_seconds: float
    bytes: int | None

    @property
    def is_of_threads(self) -> bool:
        """Whether several threads do it, and not the device or the main thread."""
        return self.name in _OF_THREADS

    @property
    def gigabytes_per_second(self) -> float | None:
        """The rate while the stage was at work."""
        if not self.bytes or self.busy_seconds <= 0:
            return None
        return self.bytes / 1e9 / self.busy_seconds


@dataclass(frozen=True)
class Profile:
    """Where the time of a run went.

    Args:
        seconds: of the run.
        stages: those that occurred, in order.
        absent: why others did not occur, by name.
        dtype: of the samples, as asked for.
        streams: CUDA streams; 0 without a GPU.
        reuse: of memory.
        notes: what a reader of the figures has to know.
        timeline: the newest spans of each stage, in seconds of the run, for a plot.
    """

    seconds: float
    stages: tuple[Stage, ...]
    absent: Mapping[str, str]
    dtype: str
    streams: int
    reuse: tuple[Reuse, ...]
    notes: tuple[str, ...] = ()
    timeline: Mapping[str, Sequence[Interval]] = field(default_factory=dict)

    @property
    def serial_seconds(self) -> float:
        """What the stages would take one after the other.

        Enqueueing is left out: the device's stages wait for it, and their times include that.
        """
        return sum(stage.alone_seconds for stage in self.stages if stage.name != ENQUEUE)

    @property
    def gain(self) -> float:
        """How much faster than its stages one after the other; below 1 if there was other work."""
        return self.serial_seconds / self.seconds if self.seconds > 0 else 0.0

    @property
    def longest(self) -> Stage | None:
        """The stage that would take longest alone: with perfect overlap the run takes as long."""
        return max(self.stages, key=lambda stage: stage.alone_seconds, default=None)

    @property
    def limit(self) -> str | None:
        """The stage that limits the run, or `None` where none is at work for half of it."""
        longest = self.longest
        if longest is None or longest.alone_seconds < _FULL * self.seconds:
            return None
        return longest.name

    @property
    def verdict(self) -> str:
        """What limits the run, and what to do about it."""
        longest = self.longest
        if longest is None:
            return "nothing was compared"
        share = longest.alone_seconds / self.seconds
        if self.limit is None:
            return (
                f"no stage limits: {longest.name}, the longest, alone would take {share:.0%} of "
                "the run; the rest is start-up and what the stages wait for one another"
            )
        takes = f"alone it would take {share:.0%} of the run"
        return f"{longest.name} limits: {takes}. To gain: {self._advice}"

    @property
    def overlap(self) -> str:
        """What overlapping the stages gains, in words."""
        longest = self.longest
        if longest is None or self.serial_seconds <= 0:
            return ""
        best = self.serial_seconds / longest.alone_seconds
        text = (
            f"one after the other the stages would take {self.serial_seconds:.2f} s, the run took "
            f"{self.seconds:.2f} s"
        )
        if self.gain < 1:
            return f"{text}: overlap gains nothing that start-up does not cost"
        return f"{text}: overlap makes it {self.gain:.2f} times as fast, of at most {best:.2f}"

    @property
    def _advice(self) -> str:
        # Samples that are already as narrow as they can be leave no choice of dtype.
        if self.limit == UPLOAD and self.dtype in ("auto", "uint8"):
            return "--crop-border, or --gpus for more links to the host"
        return _ADVICE[self.limit or DECODE]

    def json(self) -> dict[str, Any]:
        """The documented JSON form (docs/compare.md)."""
        return {
            "seconds": self.seconds,
            "serial_seconds": self.serial_seconds,
            "gain": self.gain,
            "limit": self.limit,
            "verdict": self.verdict,
            "overlap": self.overlap,
            "dtype": self.dtype,
            "streams": self.streams,
            "stages": [
                {**asdict(stage), "gigabytes_per_second": stage.gigabytes_per_second}
                for stage in self.stages
            ],
            "absent": dict(self.absent),
            "buffers": [asdict(each) for each in self.reuse],
            "notes": list(self.notes),
        }


def make_profile(
    spans: Mapping[str, Spans],
    *,
    begin: float,
    end: float,
    threads: int,
    streams: int,
    dtype: str | None,
    reuse: Sequence[Reuse],
    notes: Sequence[str] = (),
) -> Profile:
    """The profile of a run.

    Args:
        spans: of each stage, on the axis of `begin` and `end`.
        begin: of the run, in seconds.
        end: of the run.
        threads: that decode and write maps.
        streams: CUDA streams; 0 for a run on the CPU.
        dtype: of the samples; `None` for their own.
        reuse: of memory.
        notes: what a reader of the figures has to know.
    """
    unions = {name: each.union() for name, each in spans.items()}
    stages = []
    for name, each in spans.items():
        others = merge(piece for other, union in unions.items() if other != name for piece in union)
        own, rest = length(unions[name]), length(others)
        together = length(merge([*unions[name], *others]))
        by_threads = name in _OF_THREADS
        lanes = threads if by_threads else max(1, streams if name != ENQUEUE else 1)
        stages.append(
            Stage(
                name=name,
                lanes=lanes,
                count=each.count,
                seconds=each.seconds,
                busy_seconds=own,
                # Rounding may take a sum of three long times below 0.
                hidden_seconds=max(0.0, own + rest - together),
                alone_seconds=each.seconds / min(lanes, each.count) if by_threads else own,
                bytes=each.bytes or None,
            )
        )
    batches = spans[COMPUTE].count if COMPUTE in spans else 0
    amount = "1 batch" if batches == 1 else f"{batches} batches"
    few = f"only {amount}: the first one loads kernels and allocates, which counts much"
    absent: dict[str, str] = {}
    shared = []
    if not streams:
        shared = [_SHARED]
        absent = dict.fromkeys((UPLOAD, READ_BACK), "the CPU measures where the samples are")
    return Profile(
        seconds=end - begin,
        stages=tuple(stages),
        absent=absent,
        dtype=dtype or "auto",
        streams=streams,
        reuse=tuple(reuse),
        notes=(*notes, *shared, *([few] if batches < _FEW_BATCHES else [])),
        timeline=_timeline(spans, begin),
    )


def _timeline(spans: Mapping[str, Spans], begin: float) -> dict[str, list[Interval]]:
    """The newest spans, from the time on from which the spans of all stages are kept."""
    forgotten = (each.newest[0][0] for each in spans.values() if each.count > len(each.newest))
    first = max(forgotten, default=begin)
    return {
        name: [(a - begin, b - begin) for a, b in each.newest if a >= first]
        for name, each in spans.items()
    }
