"""The typer application: the commands with their options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from syncfree.cli.bench.commands import app as bench

app = typer.Typer(
    name="syncfree",
    help="Metrics that never stall the GPU, and the tools around them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


app.add_typer(bench)


def run(arguments: Sequence[str]) -> int:
    """Run the application and return its exit status."""
    try:
        app(args=list(arguments), prog_name="syncfree")
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    return 0


@app.callback()
def _commands(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    cmake_dir: Annotated[
        bool, typer.Option("--cmake-dir", help="Print the folder for CMake's syncfree_DIR.")
    ] = False,
    include_dir: Annotated[
        bool, typer.Option("--include-dir", help="Print the folder of the C++ headers.")
    ] = False,
    lib_dir: Annotated[
        bool, typer.Option("--lib-dir", help="Print the folder of libsyncfree_core.")
    ] = False,
) -> None:
    """Metrics that never stall the GPU, and the tools around them."""
    # main() handles them without this module; they are here for --help to list.
    if version or cmake_dir or include_dir or lib_dir:
        raise typer.BadParameter(
            "--version, --cmake-dir, --include-dir and --lib-dir go without a command."
        )


@app.command(
    "info",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def _info(context: typer.Context) -> None:
    """Show versions, devices and loaded libraries."""
    # main() handles `info` without this module; it is here for --help to list.
    from syncfree._info import main as info

    raise typer.Exit(info(context.args))


def _given_path(text: str) -> Path:
    if not text:  # Path would take it for the current folder
        raise typer.BadParameter("expected a path, but got an empty text: an unset variable?")
    return Path(text)


@app.command("compare")
def _compare(
    reference: Annotated[
        Path,
        typer.Argument(
            metavar="REF", parser=_given_path, help="Folder of reference images, or one file."
        ),
    ],
    test: Annotated[
        Path,
        typer.Argument(
            metavar="TEST", parser=_given_path, help="Folder of images to judge, or one file."
        ),
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
    batch: Annotated[
        int, typer.Option(help="Maximum number of images of one size measured together.")
    ] = 16,
    suffix: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="Text that ends the test images' names: with _x4, a_x4.png belongs to a.png.",
        ),
    ] = "",
    crop_border: Annotated[int, typer.Option(help="Pixels cut off each side.")] = 0,
    y_channel: Annotated[
        bool, typer.Option("--y-channel", help="Compare the BT.601 luma of color images.")
    ] = False,
    background: Annotated[
        str | None,
        typer.Option(metavar="COLOR", help="Color behind transparent pixels, such as white."),
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
    gpus: Annotated[
        str | None,
        typer.Option(metavar="all|N|cpu:N", help="One process for each GPU, or N without GPUs."),
    ] = None,
    schedule: Annotated[
        str | None, typer.Option(help="dynamic (default), equal or pixels: how work is shared.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Give up a process that holds images and sends nothing for so long; default 300.",
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Record results in DIR, and skip what an earlier run recorded there.",
        ),
    ] = None,
    scaling: Annotated[
        str | None,
        typer.Option(metavar="N,N,...", help="Run with each number of processes, show speed-up."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the profile, or the processes (extra: plot)."),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Show what limits the run: time of each stage.")
    ] = False,
    alone: Annotated[
        bool,
        typer.Option(
            "--alone", help="Do not join other processes, even if RANK and WORLD_SIZE are set."
        ),
    ] = False,
    streams: Annotated[int, typer.Option(help="CUDA streams that batches take in turn.")] = 3,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="Type of the samples on the device: float32, float16, bfloat16 or uint8; "
            "default: the smallest that is exact."
        ),
    ] = None,
) -> None:
    """Compare the images of two folders, or two files: PSNR, SSIM and mean absolute error.

    With --gpus, or under torchrun, several processes share the work.

    Exit status: 0, or 1 if any file could not be compared, or 2 for wrong usage.
    """
    from syncfree.cli.compare.command import CompareRequest, compare

    request = CompareRequest(
        reference=reference,
        test=test,
        csv=csv,
        json=json,
        maps=maps,
        metrics=metrics,
        device=device,
        batch=batch,
        suffix=suffix,
        crop_border=crop_border,
        y_channel=y_channel,
        background=background,
        workers=workers,
        show_all=show_all,
        ignore_errors=ignore_errors,
        gpus=gpus,
        schedule=schedule,
        timeout=timeout,
        resume=resume,
        scaling=scaling,
        plot=plot,
        profile=profile,
        streams=streams,
        dtype=dtype,
        alone=alone,
    )
    raise typer.Exit(compare(request))


@app.command("syncs", context_settings={"allow_interspersed_args": False})
def _syncs(
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="A script, or module:function; with -m a module."),
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGS", help="Arguments for the program.")
    ] = None,
    module: Annotated[
        bool, typer.Option("-m", help="Run the module or package TARGET, as python -m does.")
    ] = False,
    warmup: Annotated[int, typer.Option(help="Iterations to leave out at the beginning.")] = 1,
    steps: Annotated[
        int | None, typer.Option(help="End the run this many iterations after the warm-up.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="End the run after this many seconds.")
    ] = None,
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
    github: Annotated[
        bool, typer.Option("--github", help="Also print annotations for GitHub Actions.")
    ] = False,
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File of known waits: they pass, new ones fail."),
    ] = None,
    baseline_update: Annotated[
        bool, typer.Option("--baseline-update", help="Write the baseline file anew.")
    ] = False,
) -> None:
    """Run a program and list the lines that make the host wait for the GPU.

    Exit status: 0 if there is none, 1 if there is, 2 if the program fails or cannot run here.
    """
    from syncfree.cli.syncs.command import find_syncs
    from syncfree.cli.syncs.options import SyncsOptions

    options = SyncsOptions(
        target=target,
        arguments=arguments or [],
        module=module,
        warmup=warmup,
        steps=steps,
        seconds=seconds,
        step_function=step_function,
        tier=tier,
        prove=prove,
        json=json,
        sarif=sarif,
        github=github,
        baseline=baseline,
        update_baseline=baseline_update,
    )
    raise typer.Exit(find_syncs(options))
