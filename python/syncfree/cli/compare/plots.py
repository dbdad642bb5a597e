"""Draws what a comparison did with its time: its stages, or its processes and how it scales."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syncfree.cli.compare.options import UsageError
from syncfree.cli.compare.profile_plot import add_legend_above, draw_profile
from syncfree.cli.compare.report import Comparison, ScalingPoint
from syncfree.cli.plot_file import unknown_format
from syncfree.distributed.statistics import FleetStatistics

_INCHES = 4.0
_BUSY, _COPY, _IDLE = "#2b6a99", "#e39b3b", "#e6e6e6"


def check_plot(path: Path) -> None:
    """Check, before any work, that the plot can be drawn.

    Raises:
        MissingExtraError: matplotlib is not installed.
        UsageError: matplotlib writes no such format, or the name has no extension.
    """
    if not path.suffix:  # matplotlib would add one, and write to another file than was named
        raise UsageError(
            f"cannot write {path}: its extension says the format; add one, such as {path}.png"
        )
    unknown = unknown_format(path, "`syncfree compare --plot`")
    if unknown:
        raise UsageError(unknown)


def write_plot(path: Path, comparison: Comparison) -> None:
    """Draw the profile; or the processes' time, and speed-up if it was measured.

    Args:
        path: the file; its extension says the format, as `.png` or `.svg`.
        comparison: with a profile, or by several processes.

    Raises:
        OSError: the file cannot be written.
        ValueError: no such format.
    """
    from matplotlib.figure import Figure

    if comparison.profile is not None:
        draw_profile(comparison.profile).savefig(path)
        return
    assert comparison.fleet is not None
    panels = 2 if comparison.scaling else 1
    figure = Figure(figsize=(_INCHES * 1.4 * panels, _INCHES), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    _draw_ranks(axes[0], comparison.fleet)
    if comparison.scaling:
        _draw_scaling(axes[1], comparison.scaling)
    figure.savefig(path)


def _draw_ranks(axes: Any, fleet: FleetStatistics) -> None:
    reports = [each.report for each in fleet.ranks]
    names = [f"{each.rank}: {each.device or 'lost'}" for each in reports]
    copies = [each.transfer_seconds for each in reports]
    # Measuring overlaps copies: the rest is the time of measuring without a copy.
    work = [max(0.0, each.busy_seconds - each.transfer_seconds) for each in reports]
    idle = [max(0.0, fleet.seconds - each.busy_seconds) for each in reports]
    left = [0.0] * len(reports)
    for widths, label, color in (
        (copies, "copying", _COPY),
        (work, "only measuring", _BUSY),
        (idle, "idle", _IDLE),
    ):
        axes.barh(names, widths, left=left, label=label, color=color)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("seconds")
    add_legend_above(axes)


def _draw_scaling(axes: Any, points: tuple[ScalingPoint, ...]) -> None:
    counts = [point.processes for point in points]
    axes.plot(counts, counts, "--", color="gray", label="ideal")
    speedups = [point.speedup for point in points]
    axes.plot(counts, speedups, "o-", color=_BUSY, label="measured")
    axes.set_xlabel("processes")
    axes.set_ylabel("speed-up")
    axes.set_xticks(counts)
    axes.legend()
