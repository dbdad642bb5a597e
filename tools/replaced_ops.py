"""A pytest plugin: makes `syncfree` load another library in place of its own CPU ops.

`PYTHONPATH=tools REPLACED_OPS=<file> python -m pytest -p replaced_ops ...` is used for CUDA kernels
emulated on the CPU (tools/cuda_on_cpu), and for CPU kernels under a sanitizer.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

REPLACED = "libsyncfree_ops_cpu.so"
LIBRARY = Path(os.environ["REPLACED_OPS"]).resolve(strict=True)

_load_library = torch.ops.load_library
_replaced: list[str] = []


def _load_other(path: str) -> None:
    if Path(path).name == REPLACED:
        _replaced.append(path)
        path = str(LIBRARY)
    _load_library(path)


torch.ops.load_library = _load_other


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fails if the tests would run on the package's own kernels after all."""
    if session.items and not _replaced:
        raise pytest.UsageError(f"{REPLACED} was loaded before the other library, or not at all")


def pytest_report_header() -> str:
    """Names the library, and the order of the emulated threads, on which a failure may depend."""
    order = os.environ.get("CUDA_ON_CPU_ORDER", "forward")
    return f"CPU ops: {LIBRARY}" + (f", order {order}" if "CUDA_ON_CPU" in os.environ else "")
