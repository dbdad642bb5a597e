"""Draws a sweep over idle gaps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from syncfree.benchmarking.plot import new_figure, save

if TYPE_CHECKING:
    from syncfree.benchmarking.gaps import IdleGap


def plot_gaps(sweep: IdleGap, file: Path) -> None:
    """Plots times over the gap, and the clock, if it is known, on an axis of its own."""
    figure = new_figure(8, 4.5)
    axes = figure.subplots()
    places = list(range(len(sweep.points)))
    lines: dict[str, list[float | None]] = {
        "plain": [point.plain_us for point in sweep.points],
        "host": [point.host_us for point in sweep.points],
        "gated": [point.gated_us for point in sweep.points],
    }
    for name, values in lines.items():
        shown = [(x, y) for x, y in zip(places, values, strict=True) if y is not None]
        if shown:
            axes.plot(*zip(*shown, strict=True), "o-", label=name)
    axes.set_xticks(places, [f"{point.gap:g} s" for point in sweep.points])
    axes.set(xlabel="idle gap before the call", ylabel="microseconds")
    axes.set_ylim(bottom=0)
    clocks = [
        (x, point.megahertz)
        for x, point in zip(places, sweep.points, strict=True)
        if point.megahertz is not None
    ]
    if clocks:
        clock_axes = axes.twinx()
        clock_axes.plot(*zip(*clocks, strict=True), "s:", color="gray")
        clock_axes.set(ylabel="MHz (dotted)")
        clock_axes.set_ylim(bottom=0)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    title = f"{sweep.name}, {sweep.device}\n{sweep.verdict.cause}"
    axes.set_title(title, fontsize="medium", parse_math=False)
    save(figure, file)
