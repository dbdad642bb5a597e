"""Shows a comparison on a terminal, or as a plain table in a pipe."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from syncfree.cli.compare.problems import Problem
from syncfree.cli.compare.report import Comparison, ImageRow, Statistics, badness

LABELS = {"psnr": "PSNR (dB)", "ssim": "SSIM", "mae": "MAE"}
_FORMATS = {"psnr": "{:.3f}", "ssim": "{:.5f}", "mae": "{:.4f}"}
_SHOWN = 20
_PIPE_WIDTH = 100_000


def make_console(*, stderr: bool = False) -> Console:
    """A console that prints names as they are, and never folds a line into a pipe."""
    console = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    return console


def make_progress() -> Progress:
    """A progress bar on standard error, silent unless that is a terminal."""
    console = make_console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def print_comparison(console: Console, comparison: Comparison, *, show_all: bool) -> None:
    """Print the rows (the worst ones of a long list), the summary and the throughput."""
    rows, metrics = comparison.rows, comparison.options.metrics
    if not rows:
        return
    shown = rows
    if len(rows) > _SHOWN and not show_all:
        shown = sorted(rows, key=lambda row: badness(row, metrics[0]), reverse=True)[:_SHOWN]
    console.print(_image_table(console, shown, metrics))
    if len(shown) < len(rows):
        label = LABELS[metrics[0]].split()[0]
        more = len(rows) - len(shown)
        console.print(f"the {len(shown)} worst by {label}; {more} more: --all shows them")
    console.print()
    console.print(_summary_table(console, comparison.statistics()))
    console.print()
    console.print(_throughput(comparison))


def print_problems(
    console: Console, problems: Sequence[Problem], ignored: Mapping[str, int]
) -> None:
    """Print what could not be compared, and which files are no pictures."""
    if ignored:
        kinds = ", ".join(f"{kind} ({count})" for kind, count in sorted(ignored.items()))
        console.print(_text(console, f"not compared, no picture files: {kinds}"))
    if problems:
        console.print(f"{len(problems)} problem{'s' if len(problems) > 1 else ''}:", style="bold")
    for problem in problems:
        line = Text.assemble("  ", (problem.kind, "red"), ": ")
        console.print(line + _text(console, f"{', '.join(problem.files)}: {problem.reason}"))


def print_error(console: Console, message: str) -> None:
    """Print why the command stopped."""
    console.print(Text("syncfree compare: ", "red") + _text(console, message))


def _image_table(console: Console, rows: Sequence[ImageRow], metrics: Sequence[str]) -> Table:
    table = _table(console)
    table.add_column("image", overflow="fold")
    table.add_column("compared", no_wrap=True)
    for name in metrics:
        table.add_column(LABELS[name], justify="right", no_wrap=True)
    for row in rows:
        values = [_number(name, row.metric(name)) for name in metrics]
        table.add_row(_text(console, row.name), _compared(row), *values)
    return table


def _summary_table(console: Console, found: Mapping[str, Statistics]) -> Table:
    table = _table(console)
    table.add_column("metric", no_wrap=True)
    for column in ("mean", "median", "worst"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("worst image", overflow="fold")
    table.add_column("note", overflow="fold")
    for name, each in found.items():
        values = [_number(name, value) for value in (each.mean, each.median, each.worst)]
        table.add_row(
            LABELS[name], *values, _text(console, each.worst_name or "-"), each.note or ""
        )
    return table


def _throughput(comparison: Comparison) -> str:
    count, seconds = len(comparison.rows), comparison.seconds
    where = comparison.device_name
    if comparison.device != "cpu":
        where = f"{comparison.device} ({where})"
    return (
        f"{count} image{'s' if count > 1 else ''}, {comparison.megapixels:.4g} megapixels "
        f"in {seconds:.2f} s on {where}: {count / seconds:.3g} images/s, "
        f"{comparison.megapixels / seconds:.3g} megapixels/s, reading included"
    )


def _table(console: Console) -> Table:
    if console.is_terminal:
        return Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))


def _compared(row: ImageRow) -> str:
    return f"{row.width}x{row.height} {row.color}{'16' if row.data_range > 255 else ''}"


def _number(metric: str, value: float | None) -> str:
    if value is None:
        return "-"
    return "inf" if math.isinf(value) else _FORMATS[metric].format(value)


def _text(console: Console, name: str) -> Text:
    # A file name may hold bytes that are no text, or characters that the output cannot show.
    return Text(name.encode(console.encoding, "replace").decode(console.encoding))
