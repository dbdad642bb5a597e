"""Which device a function runs on, and the backend that measures there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from syncfree.benchmarking.backend import Backend
from syncfree.benchmarking.cpu import CpuBackend
from syncfree.benchmarking.cuda import CudaBackend
from syncfree.errors import BenchmarkError
from syncfree.timing.nvml import gpu_uuid


def device_of(device: str | torch.device | None, arguments: Iterable[Any]) -> torch.device:
    """The requested device; else that of the tensors among the arguments; else a GPU, if any.

    Raises:
        ValueError: The arguments are on several devices, or the device is neither CPU nor CUDA.
        BenchmarkError: It is a CUDA device, and torch sees no such GPU.
    """
    if device is None:
        found = {each.device for each in arguments if isinstance(each, torch.Tensor)}
        # CPU scalars beside tensors on the GPU are ordinary.
        if len(found) > 1:
            found = {each for each in found if each.type != "cpu"}
        if len(found) > 1:
            names = ", ".join(sorted(map(str, found)))
            raise ValueError(f"the arguments lie on {names}: say which one to time with device=...")
        device = found.pop() if found else "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise ValueError(
            f'device is "cpu", "cuda" or one as "cuda:0", but got {device!r}'
        ) from None
    if chosen.type not in ("cpu", "cuda"):
        raise ValueError(f"device is the CPU or a CUDA device, but got {chosen}")
    if chosen.type == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise BenchmarkError(f"device {chosen} was asked for, but torch sees no CUDA device here")
    index = torch.cuda.current_device() if chosen.index is None else chosen.index
    if index >= torch.cuda.device_count():
        raise BenchmarkError(f"there is no {chosen}: torch sees {torch.cuda.device_count()} GPUs")
    return torch.device("cuda", index)


@cache
def backend_of(device: torch.device, wait_tiers: Sequence[Any] = (2, "auto")) -> Backend:
    """The backend of a device.

    Args:
        device: From `device_of`.
        wait_tiers: Tiers of the sync detector that name the lines of a function that waits.

    Raises:
        BenchmarkError: The driver cannot be used.
    """
    if device.type == "cpu":
        return CpuBackend()
    from syncfree import _runtime
    from syncfree.benchmarking.torch_gpu import TorchGpu

    torch.cuda.synchronize(device)  # creates the context, which spins and events need
    problem = _runtime.cuda_status()
    if problem:
        raise BenchmarkError(f"GPU events cannot be used: {problem}")
    return CudaBackend(TorchGpu(device.index, wait_tiers), _runtime)


@contextmanager
def current(device: torch.device) -> Iterator[None]:
    """Makes a device the current one, on which spins and stamps are enqueued."""
    if device.type == "cpu":
        yield
    else:
        with torch.cuda.device(device):
            yield


def uuid_of(device: torch.device) -> str | None:
    """The GPU's UUID as NVML writes it; None for the CPU."""
    return None if device.type == "cpu" else gpu_uuid(device)
