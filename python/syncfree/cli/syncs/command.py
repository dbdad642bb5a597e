"""The command: runs a program in a region of the detector, shows findings, returns a status."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from syncfree.cli.compare.tables import make_console
from syncfree.cli.syncs.iterations import EndOfRunError, Iterations
from syncfree.cli.syncs.options import SyncsOptions, check
from syncfree.cli.syncs.processes import (
    Children,
    EndOfChildError,
    reported_before_the_end,
    run_to_its_end,
)
from syncfree.cli.syncs.program import Program, ProgramError, show_error
from syncfree.cli.syncs.threads import Threads
from syncfree.detector.stack import MACHINERY, is_inside, stack_of_error
from syncfree.detector.text import plural
from syncfree.errors import DetectorError, SyncfreeError

if TYPE_CHECKING:
    from syncfree.detector.baseline import KnownSite
    from syncfree.detector.report import Report
    from syncfree.detector.tier3.proof import Prover

CLEAN, FINDINGS, ENVIRONMENT = 0, 1, 2


def find_syncs(options: SyncsOptions) -> int:
    """Runs the program, shows the report, writes the files, and returns the exit status."""
    notes = make_console(stderr=True)
    return _told(lambda: _find(options, notes), notes)


def _find(options: SyncsOptions, notes: Console) -> int:
    check(options)
    options = options.wherever()
    program = Program(options.target, options.arguments, is_module=options.module)
    report = _run(program, options, notes)
    if options.prove and not report.failed:
        report = _prove(program, options, notes, report)
    status = _show(report, options, notes)
    return ENVIRONMENT if report.failed else status


def _told(work: Callable[[], int], notes: Console) -> int:
    """The status of the work; an error is reported, and its status is `ENVIRONMENT`."""
    try:
        return work()
    except (SyncfreeError, ImportError) as error:
        _complain(notes, error)
        return ENVIRONMENT


def _prove(program: Program, options: SyncsOptions, notes: Console, report: Report) -> Report:
    """The report with what a second run proved."""
    from syncfree.detector.tier3.proof import Prover

    if report.tier != 3:
        notes.print(Text(f"nothing proven without tier 3: {report.note}"))
        return report
    if not report.findings:
        return report
    notes.print("the program runs again, with a spinning kernel before each of these lines")
    os.chdir(options.root)
    prover = Prover(report.findings)
    if _run(program, options, notes, prover).failed:
        notes.print("the second run failed: what it did not get to is not proven")
    return prover.proved(report)


def _run(
    program: Program, options: SyncsOptions, notes: Console, prover: Prover | None = None
) -> Report:
    """The report, of all ranks on rank 0."""
    from syncfree.cli.syncs.ranks import gather
    from syncfree.detector.regions import detect_syncs
    from syncfree.detector.report import join

    listeners = [] if prover is None else [prover.take]
    region = detect_syncs(tier=options.tier_choice(), threads="all", allow=listeners)
    before: list[Report] = []
    iterations = Iterations(
        options.warmup, options.steps, options.seconds, lambda: before.append(region.restart())
    )
    children, threads = Children(), Threads()

    def finish(failed: bool) -> Report:
        if iterations.ran_out_of_time:
            notes.print(f"stopped after {options.seconds:g} s: the report is of the run so far")
        report = region.report
        if before and not iterations.judged:
            report = join(before[0], report)
        report.failed = failed
        if children.count:
            report.note = f"{report.note or f'tier {report.tier}'}; {children}"
        if options.warmup and not iterations.judged:
            seen = plural(iterations.done, "iteration") if iterations.done else "no iteration"
            notes.print(f"{seen} ended ({_ending(options)}): the warm-up is part of the report")
        elif iterations.judged:
            judged = plural(iterations.judged, "iteration")
            notes.print(f"{judged} judged, {options.warmup} before them left out")
        return gather(report, notes.print)

    def finish_now(status: int) -> int:
        def show() -> int:
            region.__exit__(None, None, None)
            return _show(finish(bool(status)), options, notes)

        if status:
            notes.print(Text(f"the program exited with {status}"))
        elif options.prove:
            notes.print("nothing proven: the program ends its process, and cannot run again")
        shown = _told(show, notes)
        sys.stdout.flush()
        sys.stderr.flush()
        return status or shown

    with ExitStack() as around:
        around.enter_context(region)
        if prover is not None:
            around.enter_context(prover)
        if options.step_function is None:
            around.enter_context(iterations.at_optimizer_steps())
        around.enter_context(iterations.within_time())
        around.enter_context(children.counted())
        around.enter_context(threads.watched())
        around.enter_context(reported_before_the_end(finish_now))
        try:
            run = partial(program.run, options.step_function, iterations.wrap)
            failed = _run_program(run, threads.wait, notes)
        except EndOfChildError:
            around.pop_all()  # the open contexts are the parent's
            raise
    return finish(failed)


def _ending(options: SyncsOptions) -> str:
    return f"by a call of {options.step_function or 'optimizer.step()'}"


def _run_program(
    run: Callable[[], Any], wait_for_threads: Callable[[], None], notes: Console
) -> bool:
    """Whether the program failed.

    Raises:
        EndOfChildError: This process is a child that the program forked.
        DetectorError: The detector, not the program, could not go on.
        ProgramError: There is no such program.
    """
    failed = False
    try:
        failed = _fails(run, notes)
        wait_for_threads()
    except EndOfRunError:
        pass
    except KeyboardInterrupt:
        notes.print("interrupted: the report is of the run so far")
    return failed


def _fails(run: Callable[[], Any], notes: Console) -> bool:
    """Runs a program; what it raises is shown as the interpreter shows it."""
    try:
        run_to_its_end(run)
    except (EndOfRunError, EndOfChildError, KeyboardInterrupt, DetectorError, ProgramError):
        raise
    except SystemExit as end:
        if end.code:
            notes.print(Text(f"the program exited with {end.code}"))
            return True
    except BaseException as error:
        show_error(error)
        return True
    return False


def _show(report: Report, options: SyncsOptions, notes: Console) -> int:
    from syncfree.cli.syncs.ranks import rank
    from syncfree.detector.baseline import Baseline
    from syncfree.detector.github import as_github
    from syncfree.detector.table import as_table
    from syncfree.detector.text import as_text

    if rank() > 0:
        return CLEAN
    vanished: list[KnownSite] = []
    if options.baseline is not None and not options.update_baseline:
        difference = Baseline.read(options.baseline, options.root).compare(report.findings)
        report, vanished = report.compared(difference.known), difference.vanished
    # Files first: they hold the report even if standard output fails.
    written = _write_files(report, options, notes)
    console = make_console()
    if console.is_terminal:
        console.print(as_table(report, options.root))
    else:
        console.print(as_text(report, most=None))
    for annotation in as_github(report, options.root) if options.github else ():
        print(annotation)
    # A program that failed did not get to all of its lines.
    for each in () if report.failed else vanished:
        notes.print(Text(f"vanished, --baseline-update takes it out of the baseline: {each}"))
    found = FINDINGS if report.count and not options.update_baseline else CLEAN
    return max(found, written)


def _write_files(report: Report, options: SyncsOptions, notes: Console) -> int:
    """Writes what was asked for; a file that cannot be written is reported, the others written."""
    writers: list[Callable[[], int]] = []
    if options.update_baseline:
        writers.append(lambda: _update_baseline(report, options, notes))
    if options.json is not None:
        writers.append(partial(_write, options.json, report.json()))
    if options.sarif is not None:
        writers.append(partial(_write, options.sarif, report.sarif(options.root)))
    return max((_told(write, notes) for write in writers), default=CLEAN)


def _update_baseline(report: Report, options: SyncsOptions, notes: Console) -> int:
    from syncfree.detector.baseline import Baseline

    assert options.baseline is not None
    if report.failed:
        notes.print("the baseline was left as it is: the program did not get to all of its lines")
    else:
        Baseline.of(report.findings, options.root).write(options.baseline)
    return CLEAN


def _write(file: Path, document: dict[str, Any]) -> int:
    try:
        file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise DetectorError(f"cannot write {file}: {error.strerror}") from None
    return CLEAN


def _complain(console: Console, error: Exception) -> None:
    console.print(Text.assemble(("syncfree syncs: ", "red"), str(error)))
    # The line of the program that asked for what the detector cannot do.
    if isinstance(error, DetectorError):
        place = stack_of_error(error.__traceback__)[0]
        if not is_inside(place.file, MACHINERY):
            console.print(Text(f"  {place.file}:{place.line} in {place.function}"))
