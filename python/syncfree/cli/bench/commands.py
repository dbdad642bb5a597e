"""Options of `syncfree bench` and `syncfree bench idle-gap`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="bench",
    help=(
        "Measure this machine's GPU or CPU with the project's own suites; `idle-gap` takes a "
        "function of yours."
    ),
    add_completion=False,
)


@app.callback(invoke_without_command=True)
def _bench(
    context: typer.Context,
    suite: Annotated[
        list[str] | None,
        typer.Option(
            help="psnr, ssim, ms-ssim, accuracy, layouts, scaling, timer, restoration or classes; "
            "may be repeated; default: all"
        ),
    ] = None,
    peers: Annotated[
        bool, typer.Option("--peers/--no-peers", help="Measure every installed peer beside ours.")
    ] = True,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    seconds: Annotated[
        float, typer.Option(help="Longest time for each contender of a workload.")
    ] = 2.0,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the result file.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the ratios (extra: plot).")
    ] = None,
) -> None:
    """Run the project's suites with every installed peer, all contenders of a workload in turn.

    Exit status: 0, or 2 if this machine cannot do what was asked.
    """
    if context.invoked_subcommand is not None:
        return
    from syncfree.cli.bench.run import SuiteOptions, run_bench

    options = SuiteOptions(tuple(suite or ()), peers, device, seconds, json, plot)
    raise typer.Exit(run_bench(options))


@app.command("idle-gap")
def _idle_gap(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="script.py:function, or module:function; or a file.json with a sweep that --json "
            "or a C++ program wrote, to be shown and drawn.",
        ),
    ],
    gaps: Annotated[
        str, typer.Option(help="Pauses in seconds, with commas between.")
    ] = "0,0.01,0.1,1,5",
    repeats: Annotated[int, typer.Option(help="Calls of each kind after each gap.")] = 5,
    factory: Annotated[
        bool, typer.Option("--factory", help="The target returns the function to measure.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the sweep as JSON.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the sweep (extra: plot).")
    ] = None,
) -> None:
    """Time a function's first call after pauses, and say why it is slow: host, clock or memory.

    Exit status: 0, 1 if the function fails, or 2 if this machine cannot do what was asked.
    """
    from syncfree.cli.bench.run import GapOptions, run_idle_gap

    raise typer.Exit(run_idle_gap(GapOptions(target, gaps, repeats, factory, device, json, plot)))
