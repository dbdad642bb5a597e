"""A timer's regions in figures, and the ways to show them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from syncfree._types_of_extras import Figure, Table
from syncfree.errors import MissingExtraError
from syncfree.timing import verdicts
from syncfree.timing.samples import History, Kind, Recording, Sample
from syncfree.timing.statistics import mad, median_of_known, quantiles

VERSION = 1


@dataclass(frozen=True)
class RegionSummary:
    """One region in figures. Times are GPU times in microseconds unless stated otherwise.

    Quantiles cover the samples that are kept; count, total and minimum cover all that there were.

    Attributes:
        name: The region's name.
        kind: ``"compute"``, ``"h2d"`` or ``"d2h"``.
        count: How many samples there were.
        kept: How many samples are kept.
        median_us: Median time.
        p10_us: 10th percentile.
        p90_us: 90th percentile.
        p99_us: 99th percentile.
        min_us: The smallest time.
        mad_us: Median absolute deviation from the median, not scaled.
        total_us: The sum of the times.
        share: Share of the total of all outermost regions. Above 1 if a region is nested in itself,
            as with a recursive function.
        transfers_us: Median time of the regions of kinds h2d and d2h inside of it, over the samples
            for which all of these are kept; None if there is no such sample.
        host_enqueue_us: Median host time in the block; None if all regions were captured.
        gpu_gap_us: Median gap on the stream before it; None if unknown.
        host_gap_us: Median gap on the host before it; None if unknown.
        mhz: Median effective clock; None if no sample is stamped.
        gb_per_second: Median rate; None if no bytes are known.
        flags: How many of the kept samples have each flag.
        verdict: What the figures mean, in words.
        nvml_mhz: Median clock of the SMs as NVML reports it; None if NVML was not read.
        watts: Median power draw; None if NVML was not read.
        celsius: Median temperature of the chip; None if NVML was not read.
        throttle: For each reason, in how many of the kept samples it held the clock down; None if
            NVML was not read.
    """

    name: str
    kind: Kind
    count: int
    kept: int
    median_us: float
    p10_us: float
    p90_us: float
    p99_us: float
    min_us: float
    mad_us: float
    total_us: float
    share: float
    transfers_us: float | None
    host_enqueue_us: float | None
    gpu_gap_us: float | None
    host_gap_us: float | None
    mhz: float | None
    gb_per_second: float | None
    flags: dict[str, int]
    verdict: str
    nvml_mhz: float | None = None
    watts: float | None = None
    celsius: float | None = None
    throttle: dict[str, int] | None = None


class Summary:
    """The measurements of a timer so far; made by :meth:`EventTimer.summary`.

    Args:
        recording: The timer's recording.

    Attributes:
        recording: The same, with flags added to its samples.
        regions: The regions, the one with the largest total first.
        notes: The facts that a reader of the figures has to know, as sentences.

    Example:
        >>> from syncfree.timing.samples import History, Recording, Sample
        >>> step = History.of([Sample("step", gpu_us=3.0), Sample("step", gpu_us=5.0)])
        >>> Summary(Recording((step,)))["step"].median_us
        4.0
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = _flagged(recording)
        self.notes = recording.notes
        outermost = sum(map(_outermost_total, recording.histories))
        inside = _Transfers(self.recording.histories)
        self.regions = sorted(
            (_summarize(each, outermost, inside) for each in self.recording.histories),
            key=lambda region: -region.total_us,
        )

    @property
    def samples(self) -> list[Sample]:
        """All kept samples, in the order in which the GPU began them."""
        samples = [each for history in self.recording.histories for each in history.samples]
        return sorted(samples, key=lambda each: each.gpu_start_us)

    def __getitem__(self, name: str) -> RegionSummary:
        """The region of that name; if there are several kinds, the one with the largest total.

        Raises:
            KeyError: There is no such region.
        """
        for region in self.regions:
            if region.name == name:
                return region
        known = ", ".join(repr(region.name) for region in self.regions) or "none"
        raise KeyError(f"no samples of a region {name!r}; there are those of: {known}")

    def json(self, samples: bool = False) -> dict[str, Any]:
        """The JSON document (docs/timing.md), as plain values.

        Args:
            samples: Whether to include each kept sample.

        Example:
            >>> Summary(Recording(())).json()["regions"]
            []
        """
        document: dict[str, Any] = {
            "version": VERSION,
            "clock": self.recording.clock,
            "bracket_us": {str(key): us for key, us in self.recording.bracket_us.items()},
            "notes": self.notes,
            "pending": self.recording.pending,
            "dropped": self.recording.dropped,
            "skipped": self.recording.skipped,
            "lost": self.recording.lost,
            "regions": [asdict(each) for each in self.regions],
        }
        if samples:
            document["samples"] = [each.as_dict() for each in self.samples]
        return document

    def table(self) -> Table:
        """The regions as a table for ``rich.print``.

        Raises:
            MissingExtraError: rich is not installed; ``str(summary)`` needs nothing.
        """
        from syncfree.timing.display import as_table

        try:
            return as_table(self)
        except ImportError:
            raise MissingExtraError("The table of a timer", "cli") from None

    def plot(self) -> Figure:
        """Timeline and distributions of the kept samples, as a matplotlib figure.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        from syncfree.timing.display import as_figure

        try:
            return as_figure(self)
        except ImportError:
            raise MissingExtraError("The plot of a timer", "plot") from None

    def to_chrome_trace(self, path: str | Path | None = None) -> dict[str, Any]:
        """The timeline for ``chrome://tracing`` and Perfetto: GPU streams and host threads.

        Args:
            path: A file to which the trace is also written as JSON.
        """
        from syncfree.timing.export import chrome_trace

        return chrome_trace(self.samples, path)

    def __str__(self) -> str:
        lines = [
            f"{each.name} ({each.kind}): {each.count}x, median "
            f"{verdicts.duration(each.median_us)}, p90 {verdicts.duration(each.p90_us)}, total "
            f"{verdicts.duration(each.total_us)} ({each.share:.0%}); {each.verdict}"
            for each in self.regions
        ]
        return "\n".join([*(lines or ["no samples yet"]), *self.notes])

    def __repr__(self) -> str:
        return f"Summary({len(self.regions)} regions, clock={self.recording.clock!r})"


def _flagged(recording: Recording) -> Recording:
    samples = [each for history in recording.histories for each in history.samples]
    clocks = verdicts.highest_clocks(samples)
    around = {each.sequence: each for each in samples}
    return replace(
        recording,
        histories=tuple(
            replace(history, samples=verdicts.flagged(history.samples, clocks, around))
            for history in recording.histories
        ),
    )


def _outermost_total(history: History) -> float:
    """The part of a region's total from samples that have no region around them.

    Estimated by time, not by count: outermost samples of a name may be long, nested ones short.
    """
    kept = sum(each.gpu_us for each in history.samples)
    outermost = sum(each.gpu_us for each in history.samples if each.depth == 0)
    return history.total_us * outermost / kept if kept else 0.0


class _Transfers:
    """The time of transfers inside of regions, as far as it is known."""

    def __init__(self, histories: Sequence[History]) -> None:
        samples = [each for history in histories for each in history.samples]
        around = {each.sequence: each for each in samples}
        self._inside: dict[int, float] = {}
        for each in samples:
            # Replays of a captured region share a sequence, so they cannot be told apart here.
            if each.kind == "compute" or each.captured:
                continue
            parent = around.get(each.parent)
            # A transfer inside of another transfer is part of that one's time.
            while parent is not None and parent.kind == "compute":
                total = self._inside.get(parent.sequence, 0.0) + each.gpu_us
                self._inside[parent.sequence] = total
                parent = around.get(parent.parent)
        self._known_from = max(map(self._oldest, histories), default=0.0)

    def median_us(self, samples: Sequence[Sample]) -> float | None:
        """The median over the samples whose transfers are all kept; None if there is none."""
        return median_of_known(
            self._inside.get(each.sequence, 0.0)
            for each in samples
            if each.sequence >= self._known_from
        )

    def _oldest(self, history: History) -> float:
        """From which sequence on a history has all transfers and the regions around them."""
        matters = history.kind != "compute" or any(
            each.sequence in self._inside for each in history.samples
        )
        if not matters or history.count == len(history.samples):
            return 0.0
        return min((s.sequence for s in history.samples if not s.captured), default=math.inf)


def _summarize(history: History, outermost: float, inside: _Transfers) -> RegionSummary:
    samples = history.samples
    times = [each.gpu_us for each in samples]
    p10, p50, p90, p99 = quantiles(times, (0.1, 0.5, 0.9, 0.99))
    rates = [s.bytes / s.gpu_us / 1e3 for s in samples if s.bytes is not None and s.gpu_us > 0]
    return RegionSummary(
        name=history.name,
        kind=history.kind,
        count=history.count,
        kept=len(samples),
        median_us=p50,
        p10_us=p10,
        p90_us=p90,
        p99_us=p99,
        min_us=history.min_us,
        mad_us=mad(times),
        total_us=history.total_us,
        share=history.total_us / outermost if outermost else 0.0,
        transfers_us=inside.median_us(samples),
        host_enqueue_us=median_of_known(each.host_enqueue_us for each in samples),
        gpu_gap_us=median_of_known(each.gpu_gap_us for each in samples),
        host_gap_us=median_of_known(each.host_gap_us for each in samples),
        mhz=median_of_known(each.mhz for each in samples),
        gb_per_second=median_of_known(rates),
        flags=dict(Counter(name for each in samples for name in each.flags)),
        verdict=verdicts.verdict(samples),
        nvml_mhz=median_of_known(each.nvml_mhz for each in samples),
        watts=median_of_known(each.watts for each in samples),
        celsius=median_of_known(each.celsius for each in samples),
        throttle=_counted_reasons(samples),
    )


def _counted_reasons(samples: Sequence[Sample]) -> dict[str, int] | None:
    told = [each.throttle for each in samples if each.throttle is not None]
    return dict(Counter(name for names in told for name in names)) if told else None
