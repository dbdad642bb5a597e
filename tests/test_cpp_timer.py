"""The event timer of C++ programs, by a driver without a GPU; and its regions of tensors."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

from fake_driver import FakeDriver


def test_by_a_driver_whose_time_stands_still(programs: Path, fake: FakeDriver) -> None:
    done = subprocess.run([programs / "timer_checks"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_region_of_a_tensor(ops, device: str) -> None:
    assert ops.count_of_region(torch.ones(2, device=device), device == "cuda") == 1


def test_a_timer_of_cuda_takes_no_tensor_of_the_cpu(ops, fake: FakeDriver) -> None:
    """Its region would be on the legacy stream of device 0, which may have nothing to do."""
    with pytest.raises(RuntimeError, match=r"syncfree: expected a tensor on CUDA.* but got cpu"):
        ops.count_of_region(torch.ones(2), True)
