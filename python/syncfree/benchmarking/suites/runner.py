"""Measures suites and makes the result file, from which the README's figures and plots come."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from syncfree._info import info
from syncfree._version import __version__
from syncfree.benchmarking.api import measure
from syncfree.benchmarking.backend import Work
from syncfree.benchmarking.cpu import processor_name
from syncfree.benchmarking.devices import backend_of, current, device_of
from syncfree.benchmarking.engine import Plan
from syncfree.benchmarking.launches import count_launches
from syncfree.benchmarking.peaks import read_bandwidth
from syncfree.benchmarking.result import Comparison, Result
from syncfree.benchmarking.suites import Workload, makers
from syncfree.benchmarking.suites.peers import versions

Row = dict[str, Any]
OURS = "syncfree"
SECONDS = 2.0
# Not tier 3, which takes CUPTI: afterwards the profiler that counts launches would see nothing.
WAIT_TIERS = (2,)


def measure_workload(
    workload: Workload,
    *,
    peers: bool = True,
    seconds: float = SECONDS,
    skip: Callable[[str, str], None] | None = None,
) -> Comparison:
    """All contenders of a workload in one run, interleaved, on the same tensors.

    Args:
        workload: The workload.
        peers: Whether to measure peers too.
        seconds: Longest time for the samples of each contender.
        skip: Called with the name and the error of each peer that raises, which is then left out;
            without `skip` the error is raised.
    """
    device = device_of(workload.device, ())
    works = {
        name: Work(call, setup=workload.setups.get(name))
        for name, call in workload.contenders.items()
        if peers or name.startswith(OURS)
    }
    with current(device):
        if skip is not None:
            for name in [each for each in works if not each.startswith(OURS)]:
                try:
                    works[name].call(*works[name].arguments())
                except Exception as error:
                    first_line, *_ = str(error).strip().splitlines() or [""]
                    skip(name, f"{type(error).__name__}: {first_line}")
                    del works[name]
        backend = backend_of(device, WAIT_TIERS)
        return measure(
            works, Plan(max_seconds=seconds), backend, device, bytes=workload.bytes or None
        )


def rows_of(workload: Workload, measured: Comparison) -> list[Row]:
    """The rows of one workload in the result file."""
    floor_us = workload.bytes / read_bandwidth(device_of(workload.device, ())) * 1e6
    ours_us = measured[OURS].device_us
    return [_row(workload, name, each, floor_us, ours_us) for name, each in measured.items()]


def _row(workload: Workload, name: str, result: Result, floor_us: float, ours_us: float) -> Row:
    extra = result.extra_bytes
    return {
        "workload": workload.name,
        "device": workload.device,
        "contender": name,
        "device_us": result.device_us,
        "interval_us": None if result.interval_us is None else list(result.interval_us),
        "mad_us": result.mad_us,
        "host_us": result.host_us,
        "plain_us": result.plain_us,
        "loop_us": result.loop_us,
        "loop_host_us": result.loop_host_us,
        "no_loop": result.no_loop,
        "samples": result.n,
        "stopped": result.stopped,
        "discards": result.discards,
        "gated": result.gated,
        "not_gateable": result.not_gateable,
        "megahertz": result.megahertz,
        "throttle": list(result.throttle),
        "verdict": result.verdict.kind,
        "read_floor_us": floor_us,
        "share_of_floor": floor_us / result.device_us,
        "times_ours": result.device_us / ours_us,
        "extra_mib": None if extra is None else extra / 2**20,
        "notes": list(result.notes),
    }


def count_workload(workload: Workload, rows: Sequence[Row]) -> None:
    """Adds the number of launches to the rows of a class's step."""
    for row in rows:
        on_gpu = workload.device == "cuda"
        call = workload.contenders[row["contender"]]
        row["launches"] = count_launches(call) if on_gpu else 0


def run_suites(
    suites: Sequence[str],
    device: str,
    *,
    peers: bool = True,
    seconds: float = SECONDS,
    show: Callable[[Workload, Comparison], None] = lambda workload, measured: None,
    skip: Callable[[str, str], None] = lambda name, reason: None,
    rows: list[Row] | None = None,
) -> list[Row]:
    """Measures the suites one workload after another.

    Args:
        suites: Keys of :data:`~syncfree.benchmarking.suites.SUITES`.
        device: ``"cuda"`` or ``"cpu"``.
        peers: Whether to measure peers too.
        seconds: Longest time for the samples of each contender.
        show: Called with each workload and its figures as soon as they are known.
        skip: Called with the name of each workload that does not fit into this GPU's memory, or
            with the names of the workload and a peer that raises; and with the reason.
        rows: A list to add the rows to, so that they are not lost if the run breaks off.

    Returns:
        The rows of the result file.
    """
    rows = [] if rows is None else rows
    counted: list[tuple[Callable[[], Workload], list[Row]]] = []
    # A list, so that a suite that cannot run raises before hours are spent on another.
    for name, make in [each for suite in suites for each in makers(suite, device)]:
        workload: Workload | None = None
        try:
            workload = make()
            left_out = partial(_skip_peer, skip, workload.name)
            measured = measure_workload(workload, peers=peers, seconds=seconds, skip=left_out)
        except torch.OutOfMemoryError as error:
            skip(name, str(error))
        else:
            new = rows_of(workload, measured)
            rows += new
            if workload.is_class:
                counted.append((make, new))
            show(workload, measured)
        # Otherwise two workloads would need memory at once. After `except`, because until its end
        # the error's traceback holds the workload too.
        workload = None
        forget(device)
    for make, new in counted:
        count_workload(make(), new)
    return rows


def _skip_peer(skip: Callable[[str, str], None], workload: str, peer: str, reason: str) -> None:
    skip(f"{workload}, {peer}", reason)


def document(rows: Sequence[Row], skipped: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The result file: the rows, and the hardware and versions that they were measured with.

    Args:
        rows: The rows from `run_suites`.
        skipped: Workloads and peers that were left out, with the reason.
    """
    facts = info()
    return {
        "date": datetime.date.today().isoformat(),
        "hardware": hardware(any(row["device"] == "cuda" for row in rows)),
        "versions": {**facts["packages"], **versions(), "syncfree": __version__},
        "build": facts["build"],
        "skipped": dict(skipped or {}),
        "rows": list(rows),
    }


def hardware(with_gpu: bool) -> dict[str, str]:
    """The processor, the number of threads, and the GPU if it was used."""
    gpu = torch.cuda.get_device_name() if with_gpu else "none"
    return {"cpu": processor_name(), "threads": str(torch.get_num_threads()), "gpu": gpu}


def forget(device: str) -> None:
    """Frees what a workload compiled and cached, so that the next one meets peers at their best.

    torch.compile would compile a function that it has seen with another shape for dynamic shapes,
    and from the ninth time on not at all.
    """
    if device == "cuda":
        torch.compiler.reset()
        torch.cuda.empty_cache()
