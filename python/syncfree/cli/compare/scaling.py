"""Runs the same comparison on several numbers of processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from syncfree.cli.compare.fleet import Work, compare_launched
from syncfree.cli.compare.problems import Problem
from syncfree.cli.compare.report import Comparison, ScalingPoint


def compare_scaling(work: Work, counts: Sequence[int]) -> Comparison:
    """Compare with each number of processes; the result is that of the last run.

    Its problems include those of the processes in the other runs. A run with such a problem gives
    no scaling point: its time says nothing about its number of processes.

    A first run, which is not counted, reads the files once, so that the first number does not pay
    for a cold disk cache. Processes start up before their time begins.

    Args:
        work: with a device for each process of the largest number, and no journals.
        counts: rising numbers.
    """
    comparison = _run(work, counts[-1])
    earlier: list[Problem] = []
    points: list[ScalingPoint] = []
    for count in counts:
        earlier += _troubles(comparison)
        comparison = _run(work, count)
        if _troubles(comparison):
            continue
        assert comparison.fleet is not None
        first = points[0] if points else None
        speedup = first.processes * first.seconds / comparison.seconds if first else float(count)
        points.append(
            ScalingPoint(
                processes=count,
                seconds=comparison.seconds,
                speedup=speedup,
                efficiency=speedup / count,
                imbalance=comparison.fleet.imbalance,
            )
        )
    comparison.problems = [*earlier, *comparison.problems]
    comparison.scaling = tuple(points)
    return comparison


def _troubles(comparison: Comparison) -> list[Problem]:
    """Problems of the processes, which another run may not have."""
    assert comparison.fleet is not None
    count = len(comparison.fleet.ranks)
    run = f"in a run with {count} process{'es' if count > 1 else ''}: "
    return [
        replace(problem, reason=run + problem.reason)
        for problem in comparison.problems
        if problem.kind in ("rank-lost", "unfinished")
    ]


def _run(work: Work, count: int) -> Comparison:
    return compare_launched(
        replace(work, fleet=replace(work.fleet, devices=work.fleet.devices[:count]))
    )
