"""Figures of syncfree beside every peer's, as tests of pytest-benchmark: `make bench`.

The workloads and their measurement are those of `syncfree bench`. Here each contender is a line in
pytest-benchmark's tables, grouped by workload, so that runs can be saved and compared.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from syncfree.benchmarking.pytest_plugin import GpuBenchmark
from syncfree.benchmarking.suites import SUITES, Workload, makers
from syncfree.benchmarking.suites.runner import (
    count_workload,
    forget,
    measure_workload,
    rows_of,
)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WORKLOADS = [each for suite in SUITES for each in makers(suite, DEVICE)]
CLASSES = list(makers("classes", DEVICE))


@pytest.mark.parametrize("make", [m for _, m in WORKLOADS], ids=[n for n, _ in WORKLOADS])
def test_workload(
    make: Callable[[], Workload], gpu_benchmark: GpuBenchmark, bench_rows: list[dict]
) -> None:
    workload = make()
    if not gpu_benchmark.enabled:
        gpu_benchmark.compare(workload.contenders)
        return
    measured = measure_workload(workload)
    gpu_benchmark.group = workload.name
    gpu_benchmark.add(measured)
    bench_rows += rows_of(workload, measured)
    forget(DEVICE)


@pytest.mark.parametrize("make", [m for _, m in CLASSES], ids=[n for n, _ in CLASSES])
def test_launches(make: Callable[[], Workload], bench_rows: list[dict]) -> None:
    """Runs after everything that is timed, because the profiler makes launches slower."""
    workload = make()
    count_workload(workload, [row for row in bench_rows if row["workload"] == workload.name])
