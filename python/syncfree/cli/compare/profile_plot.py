"""Draws a profile: when each stage was at work, and the stages one after the other against the run.

Both have the same colors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncfree.cli.compare.profile import Profile
from syncfree.cli.compare.stages import ENQUEUE, STAGES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SERIAL = "one after\nthe other"
_COLORS = dict(
    zip(STAGES, ("#8c6bb1", "#969696", "#e39b3b", "#2b6a99", "#5aa469", "#c25b56"), strict=True)
)


def draw_profile(profile: Profile) -> Figure:
    """The figure, with its conclusion as the heading."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.5), layout="constrained")
    timeline, sums = figure.subplots(2, 1, height_ratios=(3, 2))
    _draw_timeline(timeline, profile)
    _draw_sums(sums, profile)
    figure.suptitle(
        "\n".join(filter(None, (profile.verdict, profile.overlap))),
        fontsize="medium",
        wrap=True,
    )
    return figure


def add_legend_above(axes: Any) -> None:
    """Put the legend above the axes, where it covers no bar, however long one is."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=3,
        fontsize="small",
        frameon=False,
        borderaxespad=0.2,
    )


def _draw_timeline(axes: Any, profile: Profile) -> None:
    names = list(profile.timeline)
    begin = min((spans[0][0] for spans in profile.timeline.values() if spans), default=0.0)
    for row, name in enumerate(names):
        bars = [(a, b - a) for a, b in profile.timeline[name]]
        # What several threads or streams do at once is darker.
        axes.broken_barh(bars, (row - 0.4, 0.8), color=_COLORS[name], alpha=0.5, linewidth=0)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(begin, profile.seconds)
    axes.set_xlabel("seconds of the run")


def _draw_sums(axes: Any, profile: Profile) -> None:
    left = 0.0
    for stage in profile.stages:
        if stage.name != ENQUEUE:
            color = _COLORS[stage.name]
            axes.barh(_SERIAL, stage.alone_seconds, left=left, label=stage.name, color=color)
            left += stage.alone_seconds
    axes.barh("the run", profile.seconds, color="#c8c8c8")
    axes.invert_yaxis()
    axes.set_xlabel("seconds")
    if profile.stages:
        add_legend_above(axes)
