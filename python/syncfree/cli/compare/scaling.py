"""Runs the same comparison on several numbers of processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from syncfree.cli.compare.fleet import Work, compare_launched
from syncfree.cli.compare.report import Comparison, ScalingPoint


def compare_scaling(work: Work, counts: Sequence[int]) -> Comparison:
    """Compare with each number of processes; the result is that of the last run.

    A run before, which is not counted, reads the files once, so that the first number does not pay
    for a cold disk cache. Processes start up before their time begins.

    Args:
        work: with a device for each process of the largest number, and no journals.
        counts: rising numbers.
    """
    comparison = _run(work, counts[-1])
    seconds: list[float] = []
    points: list[ScalingPoint] = []
    for count in counts:
        comparison = _run(work, count)
        seconds.append(comparison.seconds)
        speedup = counts[0] * seconds[0] / comparison.seconds
        assert comparison.fleet is not None
        points.append(
            ScalingPoint(
                processes=count,
                seconds=comparison.seconds,
                speedup=speedup,
                efficiency=speedup / count,
                imbalance=comparison.fleet.imbalance,
            )
        )
    comparison.scaling = tuple(points)
    return comparison


def _run(work: Work, count: int) -> Comparison:
    return compare_launched(
        replace(work, fleet=replace(work.fleet, devices=work.fleet.devices[:count]))
    )
