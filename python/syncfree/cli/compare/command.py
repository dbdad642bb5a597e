"""The command: checks what was asked for, compares, shows and writes, returns a status."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from syncfree._output_places import why_no_folder
from syncfree.cli.compare.fleet_options import (
    FleetOptions,
    parse_counts,
    parse_gpus,
    parse_schedule,
)
from syncfree.cli.compare.images import quiet_pillow
from syncfree.cli.compare.options import (
    CompareOptions,
    LocalUsageError,
    UsageError,
)
from syncfree.cli.compare.outputs import Outputs, refuse
from syncfree.cli.compare.pairs import NothingPairedError, Pairing, common_suffix, find_pairs
from syncfree.cli.compare.profile_text import print_profile
from syncfree.cli.compare.report import Comparison, write_csv, write_json
from syncfree.cli.compare.tables import (
    make_console,
    print_comparison,
    print_error,
    print_fleet,
    print_note,
    print_problems,
    print_scaling,
)
from syncfree.distributed.environment import (
    available_cores,
    cores_of_each,
    numeric_variable,
    started_by_torchrun,
)
from syncfree.distributed.policy import TIMEOUT_SECONDS
from syncfree.errors import LauncherError, RankError

CLEAN, PROBLEMS, USAGE, INTERRUPTED = 0, 1, 2, 130
_MOST_NAMED = 16
_MOST_UNPAIRED = 50  # problems shown if nothing is paired: some say as much as all


@dataclass(frozen=True)
class CompareRequest:
    """What the command line asked for; see `docs/compare.md` for the options."""

    reference: Path
    test: Path
    csv: Path | None = None
    json: Path | None = None
    maps: Path | None = None
    metrics: str = "psnr,ssim,mae"
    device: str = "auto"
    batch: int = 16
    crop_border: int = 0
    y_channel: bool = False
    background: str | None = None
    workers: int | None = None
    show_all: bool = False
    ignore_errors: bool = False
    gpus: str | None = None
    schedule: str | None = None
    timeout: float | None = None
    resume: Path | None = None
    scaling: str | None = None
    plot: Path | None = None
    profile: bool = False
    streams: int = 3
    suffix: str = ""
    dtype: str | None = None
    alone: bool = False

    @property
    def outputs(self) -> Outputs:
        """What is to be written."""
        return Outputs(self.csv, self.json, self.plot, self.maps)

    @property
    def joins(self) -> bool:
        """Whether this process is one of several that somebody else has started."""
        return started_by_torchrun() and not self.alone

    @property
    def leads(self) -> bool:
        """Whether this process, alone or as rank 0, prints errors that concern all processes."""
        return not self.joins or os.environ["RANK"] == "0"


def compare(request: CompareRequest) -> int:
    """Run the command and return its exit status.

    Raises:
        MissingExtraError: maps or a plot were asked for without matplotlib.
    """
    notes = make_console(stderr=True)
    quiet_pillow()
    try:
        comparison = _run(request)
    except NothingPairedError as error:
        print_problems(notes, error.pairing.problems, error.pairing.ignored, _MOST_UNPAIRED)
        print_error(notes, str(error))
        return USAGE
    except UsageError as error:
        if request.leads or isinstance(error, LocalUsageError):
            print_error(notes, str(error))
        return USAGE
    except (LauncherError, RankError) as error:  # without the other processes there is no result
        is_usage = isinstance(error, LauncherError)
        print_error(notes, f"{error} Or pass --alone." if is_usage else str(error))
        return USAGE if is_usage else PROBLEMS
    except KeyboardInterrupt:
        notes.print("interrupted")
        return INTERRUPTED
    if comparison is None:
        return CLEAN  # rank 0 shows what was found
    saved = [
        _save(write_csv, request.csv, comparison),
        _save(write_json, request.json, comparison),
        _save_plot(request.plot, comparison),
    ]
    saved.append(_show(comparison, show_all=request.show_all))
    print_problems(notes, comparison.problems, comparison.ignored)
    if not request.suffix and _are_same(request.reference, request.test):
        print_note(notes, "both are the same: each image was compared with itself")
    failed = not all(saved) or (comparison.problems and not request.ignore_errors)
    return PROBLEMS if failed else CLEAN


def _show(comparison: Comparison, *, show_all: bool) -> bool:
    """Print the tables; False if standard output does not take them, as on a full disk."""
    console = make_console()
    try:
        print_comparison(console, comparison, show_all=show_all)
        if comparison.fleet is not None:
            print_fleet(console, comparison.fleet)
        if comparison.scaling:
            print_scaling(console, comparison.scaling)
        if comparison.profile is not None:
            print_profile(console, comparison.profile)
    except OSError as error:
        print_error(make_console(stderr=True), f"cannot write the table: {error.strerror}")
        # Writing what Python still buffers of the table would fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


def _run(request: CompareRequest) -> Comparison | None:
    """The comparison, or `None` in a process that only took part in it."""
    joined = request.joins
    if request.profile and (joined or request.gpus is not None):
        raise UsageError(
            "--profile is of one process: leave --gpus and torchrun out; what several processes "
            "did with their time is in their table anyway"
        )
    if joined and (request.gpus is not None or request.scaling is not None):
        raise UsageError(
            "--gpus and --scaling start processes; torchrun has started them already: "
            "leave them out, or add --alone to take no part"
        )
    if not joined and request.gpus is None:
        return _run_alone(request)
    return _run_joined(request) if joined else _run_launched(request)


def _run_alone(request: CompareRequest) -> Comparison:
    from syncfree.cli.compare.alone import compare_alone

    if request.resume is not None:
        raise UsageError(
            "--resume is for processes that --gpus or torchrun started, and one is enough: add "
            "--gpus 1, or --gpus cpu:1 without a GPU"
        )
    for name in ("schedule", "timeout", "scaling"):
        if getattr(request, name) is not None:
            raise UsageError(f"--{name} is for several processes: add --gpus all, N or cpu:N")
    if request.plot is not None and not request.profile:
        raise UsageError("--plot draws a profile or what processes did: add --profile or --gpus")
    options = _options(request, available_cores())
    return compare_alone(
        request.reference, request.test, _pairs(request), options, profile=request.profile
    )


def _run_launched(request: CompareRequest) -> Comparison:
    from syncfree.cli.compare.fleet import Work, compare_launched
    from syncfree.cli.compare.scaling import compare_scaling

    assert request.gpus is not None
    if request.device != "auto":
        raise UsageError("--gpus names the devices; leave --device out")
    devices = parse_gpus(request.gpus)
    if request.scaling is not None and request.resume is not None:
        raise UsageError("--scaling does all the work in each run; leave --resume out")
    counts = None if request.scaling is None else parse_counts(request.scaling, len(devices))
    options = _options(request, max(1, available_cores() // len(devices)))
    fleet = _fleet_options(request, devices)
    work = Work(request.reference, request.test, _pairs(request), options, fleet)
    return compare_launched(work) if counts is None else compare_scaling(work, counts)


def _run_joined(request: CompareRequest) -> Comparison | None:
    from syncfree.cli.compare.fleet import Work, compare_joined

    local_world = numeric_variable("LOCAL_WORLD_SIZE", 1)
    options = _options(request, cores_of_each(local_world))
    fleet = _fleet_options(request, ())

    def make_work() -> Work:
        return Work(request.reference, request.test, _pairs(request), options, fleet)

    return compare_joined(make_work, request.device, fleet.timeout, _note_wait)


def _note_wait(missing: Sequence[int]) -> None:
    shown = ", ".join(map(str, missing[:_MOST_NAMED]))
    more = ", ..." if len(missing) > _MOST_NAMED else ""
    make_console(stderr=True).print(
        f"waiting for rank{'s' if len(missing) > 1 else ''} {shown}{more}: RANK and WORLD_SIZE say "
        "that this process is one of several; --alone compares in it alone"
    )


def _are_same(reference: Path, test: Path) -> bool:
    try:
        return reference.samefile(test)
    except OSError:  # gone since
        return False


def _options(request: CompareRequest, workers: int) -> CompareOptions:
    request.outputs.check(request.reference, request.test)
    return CompareOptions(
        metrics=tuple(name.strip() for name in request.metrics.split(",")),
        device=request.device,
        batch=request.batch,
        crop_border=request.crop_border,
        y_channel=request.y_channel,
        background=request.background,
        workers=workers if request.workers is None else request.workers,
        maps=request.maps,
        dtype=request.dtype,
        streams=request.streams,
    )


def _fleet_options(request: CompareRequest, devices: tuple[str, ...]) -> FleetOptions:
    schedule = parse_schedule(request.schedule or "dynamic")
    timeout = TIMEOUT_SECONDS if request.timeout is None else request.timeout
    if not timeout > 0:
        raise UsageError(f"timeout is more than 0 seconds, got {timeout:g}")
    if request.resume is not None:
        refuse(why_no_folder(request.resume))
    return FleetOptions(devices, schedule, timeout, request.workers, request.resume)


def _pairs(request: CompareRequest) -> Pairing:
    pairing = find_pairs(request.reference, request.test, request.suffix)
    if not pairing.pairs:
        message = f"no image in {request.reference} has a partner in {request.test}"
        if not request.suffix and (suffix := common_suffix(request.reference, request.test)):
            message += f"; if all names there end in {suffix}, pass --suffix={suffix}"
        raise NothingPairedError(message, pairing)
    request.outputs.check_pairing(pairing)
    return pairing


def _save(
    write: Callable[[TextIO, Comparison], None], path: Path | None, comparison: Comparison
) -> bool:
    """Write a result file, if one was asked for; False if that failed."""
    if path is None:
        return True
    try:
        # Names that are not valid UTF-8 are written as their bytes.
        with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            write(file, comparison)
    except OSError as error:
        print_error(make_console(stderr=True), f"cannot write {path}: {error.strerror}")
        return False
    return True


def _save_plot(path: Path | None, comparison: Comparison) -> bool:
    """Draw the plot, if one was asked for; False if that failed."""
    if path is None:
        return True
    from syncfree.cli.compare.plots import write_plot

    try:
        write_plot(path, comparison)
    except (OSError, ValueError) as error:
        print_error(make_console(stderr=True), f"cannot write {path}: {error}")
        return False
    return True
