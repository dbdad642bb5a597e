"""A summary as a table for a terminal and as a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncfree.timing.verdicts import duration

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from syncfree.timing.summary import Summary

_MOST_BARS = 2000
"""The newest samples that a timeline shows: more are narrower than a pixel."""


def as_table(summary: Summary) -> Table:
    """The regions, the one with the largest total first; the caption has the notes.

    Raises:
        ImportError: rich is not installed.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD,
        header_style="bold",
        pad_edge=False,
        caption=Text("\n".join(summary.notes), "none") if summary.notes else None,
        caption_justify="left",
    )
    for name in ("total", "share", "count", "median", "p90", "host"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("region, and what its time is", overflow="fold")
    for each in summary.regions:
        kind = "" if each.kind == "compute" else f" ({each.kind})"
        enqueue = each.host_enqueue_us
        table.add_row(
            duration(each.total_us),
            f"{each.share:.0%}",
            str(each.count),
            duration(each.median_us),
            duration(each.p90_us),
            "-" if enqueue is None else duration(enqueue),
            Text.assemble((each.name + kind, "bold"), f"\n{each.verdict}"),
        )
    return table


def add_legend(axes: Any, **style: Any) -> None:
    """A legend of the lines with their labels unchanged.

    matplotlib would leave out labels that begin with an underscore, as names of private functions
    do, and read text between dollar signs as a formula.
    """
    lines = axes.lines
    legend = axes.legend(lines, [str(number) for number in range(len(lines))], **style)
    for text, line in zip(legend.get_texts(), lines, strict=True):
        text.set(text=line.get_label(), parse_math=False)


def as_figure(summary: Summary) -> Figure:
    """A timeline of the newest samples, above the distributions of all kept samples.

    The figure belongs to no window: ``figure.savefig("timing.png")`` writes it, and a notebook
    shows it.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6), layout="constrained")
    timeline, distribution = figure.subplots(2, 1)
    colors = {each.name: f"C{number % 10}" for number, each in enumerate(summary.regions)}
    _draw_timeline(timeline, summary, colors)
    _draw_distributions(distribution, summary, colors)
    if summary.notes:
        figure.supxlabel("\n".join(summary.notes), fontsize="small")
    return figure


def _draw_timeline(axes: Any, summary: Summary, colors: dict[str, str]) -> None:
    samples = summary.samples[-_MOST_BARS:]
    zero = min((each.gpu_start_us for each in samples), default=0.0)
    rows = {
        key: number
        for number, key in enumerate(
            sorted({(each.device, each.stream, each.depth) for each in samples})
        )
    }
    for each in samples:
        row = rows[each.device, each.stream, each.depth]
        span = ((each.gpu_start_us - zero) / 1e3, each.gpu_us / 1e3)
        axes.broken_barh([span], (row - 0.4, 0.8), color=colors[each.name])
    labels = [
        f"{'host' if device < 0 else f'GPU {device}'}, stream {stream:#x}, depth {depth}"
        for device, stream, depth in rows
    ]
    axes.set_yticks(range(len(rows)), labels, fontsize="small")
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds")
    axes.set_title("timeline")


def _draw_distributions(axes: Any, summary: Summary, colors: dict[str, str]) -> None:
    """Cumulative distributions, which need no choice of bins and show every tail."""
    for history in summary.recording.histories:
        times = sorted(each.gpu_us for each in history.samples)
        shares = [(rank + 1) / len(times) for rank in range(len(times))]
        axes.step(times, shares, where="post", color=colors[history.name], label=history.name)
    if summary.regions:
        add_legend(axes, fontsize="small")
        if all(region.min_us > 0 for region in summary.regions):
            axes.set_xscale("log")
    axes.set_xlabel("microseconds")
    axes.set_ylabel("share of samples")
    axes.set_title("distribution")
