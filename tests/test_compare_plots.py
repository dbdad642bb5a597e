"""Plots of a comparison, as they are drawn."""

from __future__ import annotations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from syncfree.cli.compare.profile_plot import add_legend_above

LONGEST = "device to host"  # of the labels that such plots have


@pytest.mark.parametrize("labels", [3, 5])
def test_a_legend_covers_no_bar(labels: int) -> None:
    figure = Figure(figsize=(5.6, 4.0), layout="constrained")
    axes = figure.subplots()
    for i in range(labels):
        axes.barh(["one", "another"], [1, 3], left=[i, 3 * i], label=LONGEST)
    add_legend_above(axes)
    FigureCanvasAgg(figure).draw()
    legend = axes.get_legend().get_window_extent()
    assert all(not legend.overlaps(bar.get_window_extent()) for bar in axes.patches)
    assert figure.bbox.x0 <= legend.x0
    assert legend.x1 <= figure.bbox.x1
    assert legend.y1 <= figure.bbox.y1
