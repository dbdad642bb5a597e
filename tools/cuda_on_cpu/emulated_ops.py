"""A pytest plugin: `syncfree` loads the emulator's library in place of its own CPU ops.

`PYTHONPATH=tools/cuda_on_cpu CUDA_ON_CPU_LIBRARY=<file> python -m pytest -p emulated_ops ...`
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

REPLACED = "libsyncfree_ops_cpu.so"
LIBRARY = Path(os.environ["CUDA_ON_CPU_LIBRARY"]).resolve(strict=True)

_load_library = torch.ops.load_library
_replaced: list[str] = []


def _load_emulated(path: str) -> None:
    if Path(path).name == REPLACED:
        _replaced.append(path)
        path = str(LIBRARY)
    _load_library(path)


torch.ops.load_library = _load_emulated


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fails where the tests would run on the CPU kernels after all."""
    if session.items and not _replaced:
        raise pytest.UsageError(f"{REPLACED} was loaded before the emulator, or not at all")


def pytest_report_header() -> str:
    """Names the order of threads, which a failure may depend on."""
    return f"CUDA on CPU: {LIBRARY}, order {os.environ.get('CUDA_ON_CPU_ORDER', 'forward')}"
