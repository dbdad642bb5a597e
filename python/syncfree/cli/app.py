"""The typer application: options of every command, and how its result is shown."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from syncfree.cli.compare.options import CompareOptions
    from syncfree.cli.compare.pairs import Pairing
    from syncfree.cli.compare.report import Comparison

app = typer.Typer(
    name="syncfree",
    help="Metrics that never stall the GPU, and the tools around them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def run(arguments: Sequence[str]) -> int:
    """Run the application and return its exit status."""
    try:
        app(args=list(arguments), prog_name="syncfree")
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    return 0


@app.callback()
def _commands(
    cmake_dir: Annotated[
        bool, typer.Option("--cmake-dir", help="Print the folder for CMake's syncfree_DIR.")
    ] = False,
    include_dir: Annotated[
        bool, typer.Option("--include-dir", help="Print the folder of the C++ headers.")
    ] = False,
) -> None:
    """Metrics that never stall the GPU, and the tools around them."""
    # main() answers each alone, without this module; here they are for --help to list.
    if cmake_dir or include_dir:
        raise typer.BadParameter("--cmake-dir and --include-dir stand alone.")


@app.command(
    "info",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def _info(context: typer.Context) -> None:
    """Show versions, devices and loaded libraries."""
    # main() answers `info` itself, without this module; it stands here for --help to list it.
    from syncfree._info import main as info

    raise typer.Exit(info(context.args))


@app.command("compare")
def _compare(
    reference: Annotated[
        Path, typer.Argument(metavar="REF", help="Folder of reference pictures, or one file.")
    ],
    test: Annotated[
        Path, typer.Argument(metavar="TEST", help="Folder of pictures to judge, or one file.")
    ],
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write a line per image as CSV.")
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write everything as JSON.")
    ] = None,
    maps: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write SSIM heat maps as PNG (extra: plot)."),
    ] = None,
    metrics: Annotated[
        str, typer.Option(help="Some of psnr, ssim, mae; the first one sorts.")
    ] = "psnr,ssim,mae",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    batch: Annotated[int, typer.Option(help="Most images of one size measured together.")] = 16,
    crop_border: Annotated[int, typer.Option(help="Pixels cut off each side.")] = 0,
    y_channel: Annotated[
        bool, typer.Option("--y-channel", help="Compare the BT.601 luma of colour pictures.")
    ] = False,
    background: Annotated[
        str | None,
        typer.Option(metavar="COLOR", help="Colour behind transparent pixels, as in white."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Decoding threads; default: one per CPU core.")
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show every image of a long list.")
    ] = False,
    ignore_errors: Annotated[
        bool, typer.Option("--ignore-errors", help="Exit with 0 in spite of problems.")
    ] = False,
) -> None:
    """Compare the pictures of two folders, or two files: PSNR, SSIM and mean absolute error.

    Exit status: 0, or 1 if any file could not be compared, or 2 for wrong usage.
    """
    from syncfree.cli.compare.options import CompareOptions, UsageError, available_cores
    from syncfree.cli.compare.pairs import find_pairs
    from syncfree.cli.compare.report import write_csv, write_json
    from syncfree.cli.compare.tables import (
        make_console,
        print_comparison,
        print_error,
        print_problems,
    )

    notes = make_console(stderr=True)
    try:
        options = CompareOptions(
            metrics=tuple(name.strip() for name in metrics.split(",")),
            device=device,
            batch=batch,
            crop_border=crop_border,
            y_channel=y_channel,
            background=background,
            workers=available_cores() if workers is None else workers,
            maps=maps,
        )
        _check_outputs(reference, test, csv, json, maps)
        pairing = find_pairs(reference, test)
        if not pairing.pairs:
            print_problems(notes, pairing.problems, pairing.ignored)
            raise UsageError(f"no picture in {reference} has a partner in {test}")
        comparison = _run_comparison(reference, test, pairing, options)
    except UsageError as error:
        print_error(notes, str(error))
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        notes.print("interrupted")
        raise typer.Exit(130) from None

    saved = [_save(write_csv, csv, comparison), _save(write_json, json, comparison)]
    print_comparison(make_console(), comparison, show_all=show_all)
    print_problems(notes, comparison.problems, comparison.ignored)
    if not all(saved) or (comparison.problems and not ignore_errors):
        raise typer.Exit(1)


@app.command("syncs", context_settings={"allow_interspersed_args": False})
def _syncs(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A script, or module:function.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="What the program gets.")
    ] = None,
    warmup: Annotated[int, typer.Option(help="Iterations to leave out at the beginning.")] = 1,
    steps: Annotated[
        int | None, typer.Option(help="End the run after so many iterations more.")
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="End the run after so long.")] = None,
    step_function: Annotated[
        str | None,
        typer.Option(
            metavar="MOD:NAME", help="A call of it ends an iteration; default: optimizer.step()."
        ),
    ] = None,
    tier: Annotated[str, typer.Option(help="auto, 0 (no GPU), 2 or 3.")] = "auto",
    prove: Annotated[
        bool, typer.Option("--prove", help="Run again with a spinning GPU as proof.")
    ] = False,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the report as JSON.")
    ] = None,
    sarif: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report as SARIF 2.1.0.")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Known sites, which pass.")
    ] = None,
    baseline_update: Annotated[
        bool, typer.Option("--baseline-update", help="Write the baseline file anew.")
    ] = False,
) -> None:
    """Run a program and list the lines that make the host wait for the GPU.

    Exit status: 0 if there is none, 1 if there is, 2 if the program or this machine cannot do it.
    """
    from syncfree.cli.syncs.command import SyncsOptions, find_syncs

    options = SyncsOptions(
        target=target,
        arguments=arguments or [],
        warmup=warmup,
        steps=steps,
        seconds=seconds,
        step_function=step_function,
        tier=tier,
        prove=prove,
        json=json,
        sarif=sarif,
        baseline=baseline,
        update_baseline=baseline_update,
    )
    raise typer.Exit(find_syncs(options))


def _check_outputs(
    reference: Path, test: Path, csv: Path | None, json: Path | None, maps: Path | None
) -> None:
    """Refuse, before any work, what could not be written or would be compared the next time."""
    from syncfree.cli.compare.options import UsageError

    for file in (csv, json):
        if file is not None and (file.is_dir() or not file.absolute().parent.is_dir()):
            raise UsageError(f"cannot write {file}: its folder does not exist, or it is a folder")
    if maps is None:
        return
    from syncfree.cli.compare.maps import palette

    palette()
    if maps.exists() and not maps.is_dir():
        raise UsageError(f"--maps is a folder; {maps} is a file")
    for folder in (reference, test):
        if folder.is_dir() and maps.resolve().is_relative_to(folder.resolve()):
            raise UsageError(f"--maps is inside {folder}, where its files would be compared")


def _run_comparison(
    reference: Path, test: Path, pairing: Pairing, options: CompareOptions
) -> Comparison:
    from PIL import Image

    from syncfree.cli.compare.engine import make_engine
    from syncfree.cli.compare.pipeline import compare_pairs
    from syncfree.cli.compare.problems import Problem
    from syncfree.cli.compare.report import Comparison, ImageRow
    from syncfree.cli.compare.tables import make_progress
    from syncfree.cli.interrupt import deferred_interrupt

    # The user named these files: a large one is no attack. Above Pillow's limit it is a problem.
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    engine = make_engine(options)
    rows: dict[str, ImageRow] = {}
    problems: list[Problem] = []
    begin = time.perf_counter()
    with (
        deferred_interrupt() as interrupt,
        closing(compare_pairs(pairing.pairs, options, engine, interrupt.check)) as done,
        make_progress() as bar,
    ):
        task = bar.add_task("comparing", total=len(pairing.pairs))
        for each in done:
            if isinstance(each, ImageRow):
                rows[each.name] = each
            else:
                problems.append(each)
            bar.update(task, completed=min(len(rows) + len(problems), len(pairing.pairs)))
        interrupt.check()
    return Comparison(
        reference=str(reference),
        test=str(test),
        options=options,
        device=str(engine.device),
        device_name=engine.name,
        rows=[rows[pair.name] for pair in pairing.pairs if pair.name in rows],
        problems=pairing.problems + problems,
        seconds=time.perf_counter() - begin,
        ignored=pairing.ignored,
    )


def _save(
    write: Callable[[TextIO, Comparison], None], path: Path | None, comparison: Comparison
) -> bool:
    """Write a result file, if one was asked for; False if that failed."""
    from syncfree.cli.compare.tables import make_console, print_error

    if path is None:
        return True
    try:
        # Names that are no UTF-8 are written as the bytes that they are.
        with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            write(file, comparison)
    except OSError as error:
        print_error(make_console(stderr=True), f"cannot write {path}: {error.strerror}")
        return False
    return True
