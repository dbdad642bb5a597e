"""What the command line of `syncfree syncs` asked for, and whether it can be done."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from syncfree._output_places import why_no_file
from syncfree.cli.syncs.program import ProgramError
from syncfree.detector.tiers import BY_NAME
from syncfree.errors import DetectorError

if TYPE_CHECKING:
    from syncfree.detector.tiers import TierChoice

_LONGEST_SECONDS = 1e8  # three years; timers of the system take not much more


@dataclass(frozen=True)
class SyncsOptions:
    """What the command line asked for.

    Args:
        target: Script or ``module:function``, or a module's name.
        arguments: Of the program.
        warmup: Iterations that are left out.
        steps: Iterations to judge; None for all.
        seconds: Longest run; None for no limit.
        step_function: Ends an iteration; None for `optimizer.step()`.
        tier: Name of the detector's tier.
        prove: Run again with a spinning GPU to prove each finding.
        json: File for the JSON report.
        sarif: File for the SARIF report.
        github: Print annotations for GitHub Actions, too.
        baseline: File of known sites.
        update_baseline: Write that file instead of comparing with it.
        module: The target is a module that runs as by ``python -m``.
        root: The folder that file names are relative to, even if the program changes its own.
    """

    target: str
    arguments: list[str] = field(default_factory=list)
    warmup: int = 1
    steps: int | None = None
    seconds: float | None = None
    step_function: str | None = None
    tier: str = "auto"
    prove: bool = False
    json: Path | None = None
    sarif: Path | None = None
    github: bool = False
    baseline: Path | None = None
    update_baseline: bool = False
    module: bool = False
    root: Path = field(default_factory=Path.cwd)

    def tier_choice(self) -> TierChoice:
        """The tier as `detect_syncs` takes it.

        Raises:
            ProgramError: There is no such tier.
        """
        if self.tier not in BY_NAME:
            raise ProgramError(f"--tier is one of {', '.join(BY_NAME)}, but got {self.tier}")
        return BY_NAME[self.tier]

    def wherever(self) -> SyncsOptions:
        """The same options with absolute paths, since the program may change its folder."""
        places = {name: getattr(self, name) for name in ("json", "sarif", "baseline")}
        return replace(
            self, **{name: self.root / file for name, file in places.items() if file is not None}
        )


def check(options: SyncsOptions) -> None:
    """Refuses, before the program runs, what could not be done afterwards."""
    options.tier_choice()
    if options.warmup < 0:
        raise ProgramError(f"--warmup is a count of at least 0, but got {options.warmup}")
    if options.steps is not None and options.steps < 1:
        raise ProgramError(f"--steps is a count of at least 1, but got {options.steps}")
    if options.seconds is not None and not 0 < options.seconds <= _LONGEST_SECONDS:
        raise ProgramError(
            f"--seconds is a time above 0 and up to {_LONGEST_SECONDS:g}, but got {options.seconds}"
        )
    if options.update_baseline and options.baseline is None:
        raise ProgramError("--baseline-update needs the file: --baseline FILE")
    written = [options.json, options.sarif]
    if options.update_baseline:
        written.append(options.baseline)
    for file in written:
        problem = "" if file is None else why_no_file(file)
        if problem:
            raise ProgramError(problem)
    _check_apart(options)
    if options.baseline is not None and not options.update_baseline:
        from syncfree.detector.baseline import Baseline

        Baseline.read(options.baseline, options.root)
    if options.prove:
        _check_prove(options)


def _check_apart(options: SyncsOptions) -> None:
    """Refuses to write two things into one file, or over the program itself."""
    named = {
        "the program": None if options.module else Path(options.target),
        "--baseline": options.baseline,
        "--json": options.json,
        "--sarif": options.sarif,
    }
    files = [(name, file) for name, file in named.items() if file is not None]
    for (name, file), (other, second) in combinations(files, 2):
        # A pipe or /dev/null takes both.
        if file.resolve() == second.resolve() and (file.is_file() or not file.exists()):
            raise ProgramError(
                f"{other} is the same file as {name}, {file}: give it one of its own"
            )


def _check_prove(options: SyncsOptions) -> None:
    from syncfree.cli.syncs.ranks import size
    from syncfree.detector.tiers import has_gpu

    if not has_gpu() or options.tier_choice() not in ("auto", 3):
        raise DetectorError(
            "--prove puts a spinning kernel before each guilty line, which needs an NVIDIA GPU and "
            "tier 3"
        )
    if size() > 1:
        raise DetectorError("--prove runs the program twice, which a torchrun cannot: run it alone")
