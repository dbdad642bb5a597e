"""Results as a rich table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from syncfree.benchmarking.text import IN_A_LOOP
from syncfree.timing.verdicts import duration

if TYPE_CHECKING:
    from syncfree.benchmarking.result import Result
HEADS = ("median", "95 %", "n", "ratio", "host in\na loop", "MHz", "peak", "MiB")


def as_table(results: Mapping[str, Result], title: str | None = None) -> Table:
    """One row for each contender; ratios are relative to the first."""
    table = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        title=title,
        title_justify="left",
    )
    table.add_column("", overflow="fold", min_width=12)
    for name in HEADS:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("bound by", overflow="fold")
    first = next(iter(results.values())).device_us
    for name, each in results.items():
        width = each.half_width
        share = max(filter(None, (each.memory_share, each.compute_share)), default=None)
        table.add_row(
            Text(name),
            duration(each.device_us),
            "-" if width is None else f"+-{width:.1%}",
            str(each.n),
            _ratio_text(each.device_us / first) if first else "-",
            "-" if each.loop_host_us is None else duration(each.loop_host_us),
            "-" if each.megahertz is None else f"{each.megahertz:.0f}",
            "-" if share is None else f"{share:.0%}",
            "-" if each.extra_bytes is None else f"{each.extra_bytes / 2**20:.1f}",
            each.verdict.kind,
        )
    notes = [
        f"{name}: {note}"
        for name, each in results.items()
        for note in (
            each.verdict.text,
            *(f"{count} discarded, {reason}" for reason, count in each.discards.items()),
            *(
                [f"{each.no_loop}; a single call takes the host {duration(each.host_us)}"]
                if each.kind == "cuda" and each.no_loop
                else []
            ),
            *(["stopped by the time limit"] if each.stopped == "time limit" else []),
            *each.notes,
        )
    ]
    if any(each.kind == "cuda" for each in results.values()):
        notes.append(f"host in a loop: {IN_A_LOOP}")
    table.caption = Text("\n".join(notes), style="default")
    table.caption_justify = "left"
    return table


def _ratio_text(ratio: float) -> str:
    """Two decimals; below 0.1 two significant digits, which would otherwise become 0.00."""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"
