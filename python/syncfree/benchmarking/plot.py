"""Draws with matplotlib's objects instead of pyplot, so that no display is needed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncfree.errors import MissingExtraError
from syncfree.timing.display import add_legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from syncfree.benchmarking.result import Result


def new_figure(width: float, height: float) -> Figure:
    """A figure that is independent of pyplot's state.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("A plot", "plot") from error
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, file: Path) -> None:
    """Writes a figure; the SVG of the same figure is always the same file."""
    from matplotlib import rc_context

    is_svg = file.suffix.lower() == ".svg"
    metadata: dict[str, Any] = {"metadata": {"Date": None}} if is_svg else {}
    with rc_context({"svg.hashsalt": "syncfree"}):
        figure.savefig(file, dpi=150, **metadata)


def plot_samples(results: Mapping[str, Result], file: Path) -> None:
    """Plots the samples in the order of measurement, and the share of them below each time."""
    figure = new_figure(10, 4)
    order, share = figure.subplots(1, 2, sharey=True)
    for name, each in results.items():
        (line,) = order.plot(each.samples_us, ".", markersize=3, label=name)
        ordered = sorted(each.samples_us)
        shares = [(i + 0.5) / len(ordered) for i in range(len(ordered))]
        share.plot(shares, ordered, color=line.get_color())
        if each.interval_us is not None:
            order.axhspan(*each.interval_us, color=line.get_color(), alpha=0.25)
    scale = "log" if len(results) > 1 else "linear"
    order.set(xlabel="sample", ylabel="microseconds", yscale=scale)
    share.set(xlabel="share of the samples below", xlim=(0, 1))
    add_legend(order)
    figure.suptitle(next(iter(results.values())).device)
    save(figure, file)
