"""Shows a profile on a terminal, or as a plain table in a pipe."""

from __future__ import annotations

from rich.console import Console

from syncfree.cli.compare.profile import Profile, Stage
from syncfree.cli.compare.stages import ENQUEUE
from syncfree.cli.compare.tables import make_table, print_table

_LEAST_WIDTH = 100  # of which numbers take 80


def print_profile(console: Console, profile: Profile) -> None:
    """Print the stages, then what limits the run and what overlap gains, in words."""
    table = make_table(console)
    table.add_column("stage", no_wrap=True)
    for column in ("times", "sum s", "busy s", "of run", "hidden", "alone s", "GB/s"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("by", overflow="fold")
    for stage in profile.stages:
        rate = stage.gigabytes_per_second
        table.add_row(
            stage.name,
            str(stage.count),
            f"{stage.seconds:.3f}",
            f"{stage.busy_seconds:.3f}",
            f"{_share(stage.busy_seconds, profile.seconds):.0%}",
            f"{_share(stage.hidden_seconds, stage.busy_seconds):.0%}",
            f"{stage.alone_seconds:.3f}",
            "-" if rate is None else f"{rate:.3g}",
            _lanes(stage, profile),
        )
    for name, reason in profile.absent.items():
        table.add_row(name, *["-"] * 7, f"absent: {reason}")
    console.print()
    print_table(console, table, least=_LEAST_WIDTH)
    console.print()
    for line in (profile.verdict, profile.overlap, _memory(profile), *profile.notes):
        if line:
            console.print(line)


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _lanes(stage: Stage, profile: Profile) -> str:
    if stage.is_of_threads:
        return _counted(stage.lanes, "thread")
    if profile.streams and stage.name != ENQUEUE:
        return _counted(stage.lanes, "stream")
    return "the main thread"


def _memory(profile: Profile) -> str:
    parts = [
        f"{each.memory} allocated {_counted(each.made, 'time')}, reused {each.reused} "
        f"({each.bytes / 2**20:.1f} MiB)"
        for each in profile.reuse
    ]
    return f"samples as {profile.dtype}; {'; '.join(parts)}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
