"""The highest read bandwidth and arithmetic rate of this device: measured, never looked up."""

from __future__ import annotations

from functools import cache

import torch

from syncfree.benchmarking.backend import Work
from syncfree.benchmarking.devices import backend_of
from syncfree.benchmarking.engine import Plan, run
from syncfree.timing.statistics import median

READ_BYTES = {"cuda": 2**31, "cpu": 2**28}
MATRIX = {"cuda": 8192, "cpu": 1024}
PLAN = Plan(precision=0.01, max_seconds=1.0)


@cache
def read_bandwidth(device: torch.device) -> float:
    """Bytes per second of a plain sum over far more than the caches hold.

    Args:
        device: The device; a GPU must be the current one.
    """
    size = READ_BYTES[device.type]
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        size = min(size, free // 2)
    x = torch.ones(size // 4, device=device)
    return x.nbytes / (_time_us(device, Work(x.sum, l2="keep")) * 1e-6)


@cache
def arithmetic_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Operations per second of a large matrix product: 2 n^3 for matrices of n by n.

    Args:
        device: The device; a GPU must be the current one.
        dtype: The dtype of the matrices; float32 uses TF32 if torch is configured so.
    """
    n = MATRIX[device.type]
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * n**3 / (_time_us(device, Work(lambda: torch.mm(a, b, out=out))) * 1e-6)


def _time_us(device: torch.device, work: Work) -> float:
    backend = backend_of(device)
    found = run({"peak": backend.probe(work)}, PLAN, backend.clock)["peak"]
    return median([each.us for each in found.sifted.kept])
