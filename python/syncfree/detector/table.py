"""A report as a table for a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from syncfree.detector.findings import Finding
from syncfree.detector.text import MEANT, details, duration, share, summary

if TYPE_CHECKING:
    from syncfree.detector.report import Report


def as_table(report: Report, root: Path | None = None) -> Table:
    """The lines that wait, the most costly first; the caption sums up.

    Args:
        report: The report.
        root: Files below it get short names; default: the working directory.
    """
    folder = f"{root or Path.cwd()}/"
    shown = report.shown
    timed = any(each.blocked_us is not None for each in shown)
    table = Table(
        box=box.SIMPLE_HEAD,
        header_style="bold",
        pad_edge=False,
        show_header=bool(shown),
        caption=Text(_caption(report), "none"),
        caption_justify="left",
    )
    if timed:
        table.add_column("time lost", justify="right", no_wrap=True)
        table.add_column("of wall", justify="right", no_wrap=True)
    table.add_column("count", justify="right", no_wrap=True)
    table.add_column("where the host waits, and what to write instead", overflow="fold")
    for each in shown:
        times = [_time(each), share(each, report) or "-"] if timed else []
        table.add_row(*times, str(each.count), _place(each, folder))
    return table


def _caption(report: Report) -> str:
    guilty = any(each.counts for each in report.findings)
    return f"{summary(report)}\n{MEANT}" if guilty else summary(report)


def _time(finding: Finding) -> str:
    return "-" if finding.blocked_us is None else duration(finding.blocked_us)


def _place(finding: Finding, folder: str) -> Text:
    kind = "" if finding.counts else f" ({finding.event.verdict.value})"
    if finding.proof:
        kind += f", {finding.proof}"
    text = Text.assemble(
        (f"{finding.file.replace(folder, '')}:{finding.line}", "bold"),
        f" in {finding.function}: ",
        (finding.event.api, "red"),
        kind,
    )
    for line in details(finding):
        style = "bold" if line == finding.frame.excerpt else "none"
        text.append(f"\n    {line.replace(folder, '')}", style)
    return text.append(f"\n{finding.suggestion}", "dim") if finding.counts else text
