"""The project's own suites: syncfree beside every installed peer, on the same tensors.

A *peer* is another library that does the same, a *workload* is one piece of work that all of them
do, a *maker* makes a workload's tensors and calls.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import torch

from syncfree.benchmarking.suites.workload import Makers, Workload

# Suites of functions come first, because the profiler that counts launches for `classes` makes
# later launches slower.
SUITES: dict[str, str] = {
    "psnr": "syncfree.benchmarking.suites.psnr:makers",
    "ssim": "syncfree.benchmarking.suites.ssim:ssim_makers",
    "ms-ssim": "syncfree.benchmarking.suites.ssim:ms_ssim_makers",
    "accuracy": "syncfree.benchmarking.suites.accuracy:makers",
    "layouts": "syncfree.benchmarking.suites.layouts:makers",
    "scaling": "syncfree.benchmarking.suites.scaling:makers",
    "timer": "syncfree.benchmarking.suites.timer:makers",
    "restoration": "syncfree.benchmarking.suites.restoration:makers",
    "classes": "syncfree.benchmarking.suites.classes:makers",
}
OF_CLASSES = ("restoration", "classes")
"""Suites that need TorchMetrics, from whose classes syncfree's derive."""


def makers(suite: str, device: str) -> Makers:
    """Names and makers of a suite's workloads, with the same random numbers in every run.

    Some kernels leave a row early, and how early depends on the numbers.

    Args:
        suite: A key of `SUITES`.
        device: ``"cuda"`` or ``"cpu"``.

    Raises:
        ValueError: There is no such suite.
    """
    if suite not in SUITES:
        raise ValueError(f"suite is one of {', '.join(SUITES)}, but got {suite}")
    module, _, name = SUITES[suite].partition(":")
    find: Callable[[str], Makers] = getattr(import_module(module), name)
    return ((title, _drawn_alike(make, device)) for title, make in find(device))


def _drawn_alike(make: Callable[[], Workload], device: str) -> Callable[[], Workload]:
    def seeded() -> Workload:
        devices = [torch.cuda.current_device()] if device == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.default_generator.manual_seed(0)
            if devices:
                torch.cuda.manual_seed(0)
            return make()

    return seeded


__all__ = ["OF_CLASSES", "SUITES", "Makers", "Workload", "makers"]
