"""What a comparison found: rows, statistics, and the CSV and JSON files."""

from __future__ import annotations

import csv
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TextIO

from syncfree._version import __version__
from syncfree.cli.compare.options import CompareOptions
from syncfree.cli.compare.problems import Problem
from syncfree.cli.compare.profile import Profile
from syncfree.distributed.statistics import FleetStatistics

FORMAT = "syncfree-compare"
VERSION = 1
COLUMNS = ("name", "reference", "test", "width", "height", "color", "data_range")


@dataclass(frozen=True)
class ImageRow:
    """One compared pair.

    Args:
        name: the reference's path inside its folder.
        reference: path of the reference picture.
        test: path of the judged picture.
        width: compared pixels across, after cropping.
        height: compared pixels down, after cropping.
        color: `rgb`, `gray` or `y`: what was compared.
        data_range: 255, or 65535 for 16-bit gray.
        psnr: in dB, infinite for identical samples; NaN in a metric that was not measured.
        ssim: at most 1.
        mae: mean absolute difference, in steps of the data range.
    """

    name: str
    reference: str
    test: str
    width: int
    height: int
    color: str
    data_range: float
    psnr: float
    ssim: float
    mae: float

    @property
    def identical(self) -> bool:
        """Whether the compared samples are all equal."""
        return math.isinf(self.psnr)

    def metric(self, name: str) -> float:
        """The value of `psnr`, `ssim` or `mae`."""
        return float(getattr(self, name))


@dataclass(frozen=True)
class Statistics:
    """One metric over all rows. `None` where there is nothing to state; `note` says why."""

    mean: float | None
    median: float | None
    worst: float | None
    worst_name: str | None
    count: int
    infinite: int
    note: str | None = None


@dataclass(frozen=True)
class ScalingPoint:
    """A run of the same comparison on some number of processes.

    Args:
        processes: their number.
        seconds: of the run.
        speedup: how many times faster than with the fewest processes, times their number.
        efficiency: `speedup / processes`.
        imbalance: largest over mean active time of the processes, minus 1.
    """

    processes: int
    seconds: float
    speedup: float
    efficiency: float
    imbalance: float


@dataclass
class Comparison:
    """Everything a comparison found.

    `seconds` is the whole run from the first decoding on. `restored` names the rows that come from
    journals of earlier runs; `fleet` says how several processes shared the work, `profile` what
    limited one that was timed.
    """

    reference: str
    test: str
    options: CompareOptions
    device: str
    device_name: str
    rows: list[ImageRow]
    problems: list[Problem]
    seconds: float
    ignored: Mapping[str, int] = field(default_factory=dict)
    fleet: FleetStatistics | None = None
    restored: frozenset[str] = frozenset()
    scaling: tuple[ScalingPoint, ...] = ()
    profile: Profile | None = None

    @property
    def images_per_second(self) -> float:
        """Throughput of this run, without restored rows."""
        return _rate(len(self.rows) - len(self.restored), self.seconds)

    @property
    def megapixels_per_second(self) -> float:
        """Throughput of this run, without restored rows."""
        measured = sum(r.width * r.height for r in self.rows if r.name not in self.restored)
        return _rate(measured / 1e6, self.seconds)

    @property
    def megapixels(self) -> float:
        """Compared area in million pixels, each pair counted once."""
        return sum(row.width * row.height for row in self.rows) / 1e6

    def statistics(self) -> dict[str, Statistics]:
        """Statistics of each metric asked for."""
        return {name: describe(self.rows, name) for name in self.options.metrics}


def badness(row: ImageRow, metric: str) -> float:
    """A number that is larger, the worse the row is by this metric."""
    return row.metric(metric) if metric == "mae" else -row.metric(metric)


def describe(rows: Sequence[ImageRow], metric: str) -> Statistics:
    """Mean, median and worst of one metric.

    The infinite PSNR of identical pictures stays out of mean, median and worst, and is counted
    separately. MAE over pictures of different data ranges would mix units, so it has no statistics.

    Example:
        >>> from syncfree.cli.compare.report import describe
        >>> describe([], "psnr").count
        0
    """
    finite = [row for row in rows if math.isfinite(row.metric(metric))]
    infinite = len(rows) - len(finite)
    ranges = sorted({row.data_range for row in rows})
    note: str | None = None
    if metric == "mae" and len(ranges) > 1:
        listed = ", ".join(f"{value:g}" for value in ranges)
        note = f"not summed up: the images have different data ranges ({listed})"
        return Statistics(None, None, None, None, 0, 0, note)
    if infinite:
        note = f"without {infinite} identical (infinite)"
    if not finite:
        return Statistics(None, None, None, None, 0, infinite, note)
    values = [row.metric(metric) for row in finite]
    worst = max(finite, key=lambda row: badness(row, metric))
    return Statistics(
        mean=math.fsum(values) / len(values),
        median=statistics.median(values),
        worst=worst.metric(metric),
        worst_name=worst.name,
        count=len(values),
        infinite=infinite,
        note=note,
    )


def write_csv(file: TextIO, comparison: Comparison) -> None:
    """One line per compared pair, in full precision; infinite PSNR is the text `inf`."""
    metrics = comparison.options.metrics
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*COLUMNS, *metrics, "identical"])
    for row in comparison.rows:
        fixed = [getattr(row, column) for column in COLUMNS]
        values = [repr(row.metric(name)) for name in metrics]
        writer.writerow([*fixed, *values, str(row.identical).lower()])


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The documented JSON form (docs/compare.md), version `VERSION`; infinite PSNR is null."""
    options, rows = comparison.options, comparison.rows
    extra: dict[str, Any] = {}
    if comparison.fleet is not None:
        extra["fleet"] = _fleet_as_json(comparison.fleet)
    if comparison.scaling:
        extra["scaling"] = [asdict(point) for point in comparison.scaling]
    if comparison.profile is not None:
        extra["profile"] = comparison.profile.json()
    return {
        "format": FORMAT,
        "version": VERSION,
        "syncfree": __version__,
        "reference": comparison.reference,
        "test": comparison.test,
        "options": {
            "metrics": list(options.metrics),
            "device": comparison.device,
            "device_name": comparison.device_name,
            "batch": options.batch,
            "crop_border": options.crop_border,
            "y_channel": options.y_channel,
            "background": options.background,
            "workers": options.workers,
            "maps": None if options.maps is None else str(options.maps),
            "dtype": options.dtype,
            "streams": options.streams,
        },
        "images": [_row_as_json(row, options.metrics) for row in rows],
        "summary": {
            "images": len(rows),
            "identical": sum(row.identical for row in rows),
            "seconds": comparison.seconds,
            "images_per_second": comparison.images_per_second,
            "megapixels": comparison.megapixels,
            "megapixels_per_second": comparison.megapixels_per_second,
            "metrics": {name: asdict(found) for name, found in comparison.statistics().items()},
        },
        "problems": [asdict(problem) for problem in comparison.problems],
        "ignored": dict(comparison.ignored),
        **extra,
    }


def write_json(file: TextIO, comparison: Comparison) -> None:
    """Write `as_json`, as strict JSON."""
    json.dump(as_json(comparison), file, indent=2, allow_nan=False)
    file.write("\n")


def _fleet_as_json(fleet: FleetStatistics) -> dict[str, Any]:
    """The statistics, with each rank's own report beside what was derived from it."""
    ranks = [{**asdict(each.report), **asdict(each)} for each in fleet.ranks]
    for rank in ranks:
        del rank["report"]
    return {**asdict(fleet), "ranks": ranks}


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0


def _row_as_json(row: ImageRow, metrics: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {column: getattr(row, column) for column in COLUMNS}
    for metric in metrics:
        value = row.metric(metric)
        found[metric] = None if math.isinf(value) else value
    return {**found, "identical": row.identical}
