"""Shows a comparison on a terminal, or as a plain table in a pipe."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from syncfree.cli.compare.problems import Problem
from syncfree.cli.compare.report import Comparison, ImageRow, ScalingPoint, Statistics, badness
from syncfree.distributed.statistics import FleetStatistics, RankStatistics

LABELS = {"psnr": "PSNR (dB)", "ssim": "SSIM", "mae": "MAE"}
_FORMATS = {"psnr": "{:.3f}", "ssim": "{:.5f}", "mae": "{:.4f}"}
_SHOWN = 20
_MOST_BARS = 16
_PIPE_WIDTH = 100_000
_LEAST_WIDTH = 80
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# The first batch of each process loads kernels and reserves memory, tenths of a second in which its
# device idles. In a shorter run these would dominate rates and shares.
STEADY_SECONDS = 3.0


def make_console(*, stderr: bool = False) -> Console:
    """A console that prints names as they are, and never folds a line into a pipe."""
    console = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    return console


def make_progress() -> Progress:
    """A progress bar on standard error, silent unless that is a terminal."""
    console = make_console(stderr=True)
    return Progress(
        *_progress_columns(), console=console, transient=True, disable=not console.is_terminal
    )


def _progress_columns() -> tuple[ProgressColumn, ...]:
    return BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()


class FleetProgress:
    """A bar for all processes together, and a line for each of them where they are few.

    Args:
        total: images to be done.
        world: number of processes.
    """

    def __init__(self, total: int, world: int) -> None:
        console = make_console(stderr=True)
        columns = (TextColumn("{task.description}"), *_progress_columns())
        self._bar = Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal
        )
        self._all = self._bar.add_task("all", total=total)
        shown = range(world if 1 < world <= _MOST_BARS else 0)
        self._each = {rank: self._bar.add_task(f"rank {rank}", total=total) for rank in shown}

    def __enter__(self) -> FleetProgress:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def advance(self, rank: int) -> None:
        """Count an image of a rank."""
        self._bar.advance(self._all)
        if rank in self._each:
            self._bar.advance(self._each[rank])


def print_comparison(console: Console, comparison: Comparison, *, show_all: bool) -> None:
    """Print the rows (the worst ones of a long list), the summary and the throughput."""
    rows, metrics = comparison.rows, comparison.options.metrics
    if not rows:
        return
    shown = rows
    if len(rows) > _SHOWN and not show_all:
        shown = sorted(rows, key=lambda row: badness(row, metrics[0]), reverse=True)[:_SHOWN]
    print_table(console, _image_table(console, shown, metrics))
    if len(shown) < len(rows):
        label = LABELS[metrics[0]].split()[0]
        more = len(rows) - len(shown)
        console.print(f"the {len(shown)} worst by {label}; {more} more: --all shows them")
    console.print()
    print_table(console, _summary_table(console, comparison.statistics()))
    console.print()
    console.print(_throughput(comparison))


def print_fleet(console: Console, fleet: FleetStatistics) -> None:
    """Print what each process did with its time, and how well the work was spread.

    Shares and speeds are left out of a run that was too short for them.
    """
    steady = fleet.seconds >= STEADY_SECONDS
    table = make_table(console)
    for column in ("rank", "device"):
        table.add_column(column, no_wrap=True)
    for column in ("images", "active s", "busy s", "idle", "copies", "speed"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("note", overflow="fold")
    for each in fleet.ranks:
        report = each.report
        table.add_row(
            str(report.rank),
            _device(fleet, each),
            str(report.items),
            f"{report.active_seconds:.2f}",
            f"{report.busy_seconds:.2f}",
            f"{each.idle_share:.0%}" if steady else "-",
            f"{each.transfer_share:.0%}" if steady else "-",
            f"{each.speed:.2f}" if steady and each.speed is not None else "-",
            _note(each) if steady or each.lost is not None else "",
        )
    console.print()
    print_table(console, table)
    again = f", {fleet.reissued} images handed out again" if fleet.reissued else ""
    restored = f", {fleet.restored} images from journals" if fleet.restored else ""
    balance = f"imbalance {fleet.imbalance:.1%}, efficiency {fleet.efficiency:.1%}"
    if not steady:
        balance = f"{fleet.seconds:.2g} s are too short to judge speeds, shares and balance"
    console.print(
        f"{fleet.schedule}: {balance}, ready after {fleet.startup_seconds:.1f} s{again}{restored}"
    )


def print_scaling(console: Console, points: Sequence[ScalingPoint]) -> None:
    """Print speed-up and efficiency of each number of processes."""
    table = make_table(console)
    for column in ("processes", "seconds", "speed-up", "efficiency", "imbalance"):
        table.add_column(column, justify="right", no_wrap=True)
    for point in points:
        table.add_row(
            str(point.processes),
            f"{point.seconds:.2f}",
            f"{point.speedup:.2f}",
            f"{point.efficiency:.1%}",
            f"{point.imbalance:.1%}",
        )
    console.print()
    print_table(console, table)
    if any(point.seconds < STEADY_SECONDS for point in points):
        console.print(
            f"runs of less than {STEADY_SECONDS:g} s are mostly the processes' first batches, and "
            "say little of scaling: compare more images"
        )


def print_problems(
    console: Console,
    problems: Sequence[Problem],
    ignored: Mapping[str, int],
    most: int | None = None,
) -> None:
    """Print which files were not looked at, and what could not be compared, the first `most`."""
    if ignored:
        kinds = ", ".join(f"{_name(kind)} ({count})" for kind, count in sorted(ignored.items()))
        console.print(_text(console, f"not compared, other extensions: {kinds}"))
    if problems:
        console.print(f"{len(problems)} problem{'s' if len(problems) > 1 else ''}:", style="bold")
    for problem in problems[:most]:
        line = Text.assemble("  ", (problem.kind, "red"), ": ")
        where = f"{', '.join(map(_name, problem.files))}: " if problem.files else ""
        console.print(line + _text(console, f"{where}{problem.reason}"))
    if most is not None and len(problems) > most:
        console.print(f"  ... and {len(problems) - most} more")


def print_note(console: Console, message: str) -> None:
    """Print what a user may not have meant."""
    console.print(Text("note: ", "yellow") + _text(console, message))


def print_error(console: Console, message: str) -> None:
    """Print why the command stopped."""
    console.print(Text("syncfree compare: ", "red") + _text(console, message))


def _image_table(console: Console, rows: Sequence[ImageRow], metrics: Sequence[str]) -> Table:
    table = make_table(console)
    table.add_column("image", overflow="fold")
    table.add_column("compared", no_wrap=True)
    for name in metrics:
        label = f"MAE ({_unit(rows)})" if name == "mae" else LABELS[name]
        table.add_column(label, justify="right", no_wrap=True)
    for row in rows:
        values = [_number(name, row.metric(name)) for name in metrics]
        table.add_row(_text(console, _name(row.name)), _compared(row), *values)
    return table


def _summary_table(console: Console, found: Mapping[str, Statistics]) -> Table:
    table = make_table(console)
    table.add_column("metric", no_wrap=True)
    for column in ("mean", "median", "worst"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("worst image", overflow="fold")
    table.add_column("note", overflow="fold")
    for name, each in found.items():
        values = [_number(name, value) for value in (each.mean, each.median, each.worst)]
        table.add_row(
            LABELS[name], *values, _text(console, _name(each.worst_name or "-")), each.note or ""
        )
    return table


def _throughput(comparison: Comparison) -> str:
    count = len(comparison.rows)
    where = comparison.device_name
    if comparison.device != "cpu":
        where = f"{comparison.device} ({where})"
    done = (
        f"{count} image{'s' if count > 1 else ''}, {comparison.megapixels:.4g} megapixels "
        f"in {comparison.seconds:.2f} s on {where}"
    )
    if comparison.fleet is not None and comparison.seconds < STEADY_SECONDS:
        return f"{done}, reading included"
    return (
        f"{done}: {comparison.images_per_second:.3g} images/s, "
        f"{comparison.megapixels_per_second:.3g} megapixels/s, reading included"
    )


def _device(fleet: FleetStatistics, rank: RankStatistics) -> str:
    several = len({each.report.host for each in fleet.ranks if each.report.host}) > 1
    return f"{rank.report.host} {rank.report.device}" if several else rank.report.device or "-"


def _note(rank: RankStatistics) -> str:
    if rank.lost is not None:
        return f"lost: {rank.lost}"
    if rank.reason is None:
        return ""
    throttled = f" ({', '.join(rank.report.throttled)})" if rank.report.throttled else ""
    return f"straggler: {rank.reason}{throttled}"


def make_table(console: Console) -> Table:
    """A table with a rule below its head on a terminal, of text alone in a pipe."""
    if console.is_terminal:
        return Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))


def print_table(console: Console, table: Table, least: int = _LEAST_WIDTH) -> None:
    """Print a table.

    A terminal that is too narrow wraps its lines: rich would cut numbers and leave out columns.

    Args:
        console: where to.
        table: what.
        least: characters in a line that it may take, however narrow the terminal is.
    """
    width = console.width
    unfolded = console.options.update(max_width=_PIPE_WIDTH)
    needed = Measurement.get(console, unfolded, table).maximum
    console.width = max(width, min(needed, least))
    console.print(table)
    console.width = width


def _unit(rows: Sequence[ImageRow]) -> str:
    """The unit of MAE: the data range in whose steps it counts, or both if depths are mixed."""
    return " or ".join(f"0..{top:g}" for top in sorted({row.data_range for row in rows}))


def _compared(row: ImageRow) -> str:
    return f"{row.width}x{row.height} {row.color}{'16' if row.data_range > 255 else ''}"


def _number(metric: str, value: float | None) -> str:
    if value is None:
        return "-"
    return "inf" if math.isinf(value) else _FORMATS[metric].format(value)


def _name(name: str) -> str:
    """A file's name in one line, without control characters."""
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], name)


def _text(console: Console, name: str) -> Text:
    # A file name may hold bytes that are no text, or characters that the output cannot show.
    return Text(name.encode(console.encoding, "replace").decode(console.encoding))
