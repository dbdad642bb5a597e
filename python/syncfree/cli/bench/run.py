"""Runs `syncfree bench`: measures, shows and writes what was asked for; returns the exit status."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from syncfree._output_places import why_no_file
from syncfree.benchmarking.devices import device_of
from syncfree.cli.bench.target import load_function, made_function
from syncfree.cli.compare.tables import make_console
from syncfree.cli.plot_file import unknown_format
from syncfree.cli.syncs.program import show_error
from syncfree.errors import BenchmarkError, SyncfreeError

if TYPE_CHECKING:
    from syncfree.benchmarking.gaps import IdleGap
    from syncfree.benchmarking.result import Comparison
    from syncfree.benchmarking.suites import Workload

FINE, FAILED, ENVIRONMENT = 0, 1, 2


@dataclass(frozen=True)
class SuiteOptions:
    """What the command line asked for.

    Args:
        suites: Names; empty for all.
        peers: Whether to measure other libraries too.
        device: auto, cpu or cuda.
        seconds: Longest time for each contender.
        json: Where the result file goes.
        plot: Where the plot goes.
    """

    suites: tuple[str, ...]
    peers: bool
    device: str
    seconds: float
    json: Path | None
    plot: Path | None


@dataclass(frozen=True)
class GapOptions:
    """What the command line asked for.

    Args:
        target: The function, or a JSON file with a sweep.
        gaps: Seconds, with commas between.
        repeats: Calls of each kind after each gap.
        factory: Whether the target returns the function.
        device: auto, cpu or cuda.
        json: Where the figures go.
        plot: Where the plot goes.
    """

    target: str
    gaps: str
    repeats: int
    factory: bool
    device: str
    json: Path | None
    plot: Path | None


def run_bench(options: SuiteOptions) -> int:
    """Measures suites; each workload is shown as soon as it is measured."""
    return _guarded(lambda console: _bench(options, console))


def run_idle_gap(options: GapOptions) -> int:
    """Sweeps over idle gaps."""
    return _guarded(lambda console: _idle_gap(options, console))


def _bench(options: SuiteOptions, console: Console) -> int:
    from syncfree.benchmarking.suites import SUITES
    from syncfree.benchmarking.suites.runner import document, run_suites

    suites = options.suites or _all_suites()
    for each in suites:
        if each not in SUITES:
            raise BenchmarkError(f"--suite is one of {', '.join(SUITES)}, but got {each}")
    if not options.seconds > 0:
        raise BenchmarkError(f"--seconds is a time above 0, but got {options.seconds:g}")
    _check_files(options.json, options.plot)
    device = _device(options.device)

    def show(workload: Workload, measured: Comparison) -> None:
        from syncfree.benchmarking.table import as_table

        console.print(as_table(measured, workload.name))
        console.print()

    skipped: dict[str, str] = {}

    def skip(name: str, reason: str) -> None:
        skipped[name] = reason
        _complain(f"{name} is left out: {reason}")

    rows: list[dict[str, Any]] = []
    try:
        run_suites(
            suites,
            device,
            peers=options.peers,
            seconds=options.seconds,
            show=show,
            skip=skip,
            rows=rows,
        )
    except BaseException as error:  # Ctrl-C, hours into the run
        if rows and options.json is not None:
            _write(options.json, {**document(rows, skipped), "unfinished": type(error).__name__})
            _complain(f"what had been measured is in {options.json}, which says `unfinished`")
        raise
    found = document(rows, skipped)
    if options.json is not None:
        _write(options.json, found)
    if options.plot is not None:
        from syncfree.benchmarking.suites.plot import plot_rows

        with _told_of(options.plot):
            plot_rows(found, options.plot)
    return FINE


def _all_suites() -> tuple[str, ...]:
    from syncfree.benchmarking.suites import OF_CLASSES, SUITES
    from syncfree.benchmarking.suites.peers import is_there

    if is_there("torchmetrics"):
        return tuple(SUITES)
    make_console(stderr=True).print(
        f"without the suites {' and '.join(OF_CLASSES)}: our metric classes need torchmetrics, "
        "which is not installed"
    )
    return tuple(each for each in SUITES if each not in OF_CLASSES)


def _idle_gap(options: GapOptions, console: Console) -> int:
    _check_files(options.json, options.plot)
    try:
        found = _read(options.target) if options.target.endswith(".json") else _sweep(options)
    except (SyncfreeError, KeyboardInterrupt):
        raise
    except SystemExit as end:  # its status may be 0, which would mean that all was measured
        _complain(f"the program exited with {end.code or 0} before the sweep was done")
        return FAILED
    except Exception as error:  # the program's own
        show_error(error)
        return FAILED
    console.print(found.table() if console.is_terminal else str(found))
    if options.json is not None:
        _write(options.json, found.json())
    if options.plot is not None:
        with _told_of(options.plot):
            found.plot(options.plot)
    return FINE


def _sweep(options: GapOptions) -> IdleGap:
    from syncfree.benchmarking.gaps import idle_gap

    try:
        gaps = [float(each) for each in options.gaps.split(",")]
        if not all(0 <= each < float("inf") for each in gaps):
            raise ValueError
    except ValueError:
        raise BenchmarkError(
            f"--gaps is seconds of at least 0, with commas between, but got {options.gaps}"
        ) from None
    if options.repeats < 1:
        raise BenchmarkError(f"--repeats is a count of at least 1, but got {options.repeats}")
    device = _device(options.device)
    function = load_function(options.target)
    if options.factory:
        function = made_function(options.target, function())
    return idle_gap(function, gaps=gaps, repeats=options.repeats, device=device)


def _read(file: str) -> IdleGap:
    """A sweep that was written before, by this command or by a C++ program."""
    from syncfree.benchmarking.gaps import IdleGap

    try:
        return IdleGap.from_json(json.loads(Path(file).read_text(encoding="utf-8")))
    except OSError as error:
        raise BenchmarkError(f"cannot read {file}: {error.strerror}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BenchmarkError(
            f"cannot read {file}: it holds no JSON, as --json of this command writes ({error})"
        ) from None
    except ValueError as error:
        raise BenchmarkError(f"cannot read {file}: {error}") from None


def _guarded(command: Callable[[Console], int]) -> int:
    try:
        return command(make_console())
    except SyncfreeError as error:
        _complain(str(error))
        return ENVIRONMENT
    except KeyboardInterrupt:
        _complain("interrupted")
        return 130


def _device(name: str) -> str:
    if name not in ("auto", "cpu", "cuda"):
        raise BenchmarkError(f"--device is auto, cpu or cuda, but got {name}")
    return device_of(None if name == "auto" else name, ()).type


def _check_files(json_file: Path | None, plot_file: Path | None) -> None:
    """Refuses, before any work, what could not be written afterwards."""
    unknown = "" if plot_file is None else unknown_format(plot_file, "`syncfree bench --plot`")
    if unknown:
        raise BenchmarkError(unknown)
    for file in (json_file, plot_file):
        problem = "" if file is None else why_no_file(file)
        if problem:
            raise BenchmarkError(problem)


def _write(file: Path, document: dict[str, Any]) -> None:
    with _told_of(file):
        file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


@contextmanager
def _told_of(file: Path) -> Iterator[None]:
    """Reports errors of the file system with the file's name."""
    try:
        yield
    except OSError as error:
        raise BenchmarkError(f"cannot write {file}: {error.strerror}") from None


def _complain(message: str) -> None:
    make_console(stderr=True).print(Text.assemble(("syncfree bench: ", "red"), message))
