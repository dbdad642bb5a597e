"""Our figures beside every peer's, in one run: `make bench`.

Each workload measures all its contenders in turn on the same tensors. pytest-benchmark keeps the
host time of each; the device time, the share of the measured read bandwidth and the ratio to ours
stand in the table printed at the end and in `--bench-json`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from class_workloads import class_workloads
from measure import Timing, count_launches, read_bandwidth, time_cpu, time_cuda
from timer_workloads import timer_workloads
from workloads import Workload, cpu_workloads, cuda_workloads

if torch.cuda.is_available():
    WORKLOADS = [*cuda_workloads(), *class_workloads("cuda"), *timer_workloads("cuda")]
else:
    WORKLOADS = [*cpu_workloads(), *class_workloads("cpu"), *timer_workloads("cpu")]


@pytest.fixture(scope="session")
def bandwidth() -> float:
    return read_bandwidth("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("make", [m for _, m in WORKLOADS], ids=[n for n, _ in WORKLOADS])
def test_workload(
    make: Callable[[], Workload], bandwidth: float, benchmark, bench_rows: list[dict]
) -> None:
    workload = make()
    measure = time_cuda if workload.device == "cuda" else time_cpu
    floor_us = workload.bytes / bandwidth * 1e6
    timings: dict[str, Timing] = {}
    for name, call in workload.contenders.items():
        before = torch.cuda.memory_allocated() if workload.device == "cuda" else 0
        if workload.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        timings[name] = measure(call)
        extra = torch.cuda.max_memory_allocated() - before if workload.device == "cuda" else 0
        row = {
            "workload": workload.name,
            "device": workload.device,
            "contender": name,
            "device_us": timings[name].device_us,
            "host_us": timings[name].host_us,
            "samples": timings[name].samples,
            "read_floor_us": floor_us,
            "share_of_floor": floor_us / timings[name].device_us,
            "times_ours": timings[name].device_us / timings["syncfree"].device_us,
            "extra_mib": extra / 2**20,
        }
        if workload.is_class:
            row["launches"] = count_launches(call) if workload.device == "cuda" else 0
        bench_rows.append(row)
    benchmark.group = workload.name
    benchmark.extra_info["device_us"] = {n: t.device_us for n, t in timings.items()}
    benchmark.pedantic(workload.contenders["syncfree"], rounds=20, iterations=1, warmup_rounds=2)
