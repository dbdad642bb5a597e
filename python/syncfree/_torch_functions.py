"""Addresses of C functions that return the current device, the stream and its capture status.

They return what functions of ``torch._C`` return, but can be called without Python.
"""

from __future__ import annotations

import ctypes
import os

import torch


def current_device_address() -> int:
    """Address of an ``int32_t (int32_t *device)`` that returns 0 for success; 0 without one."""
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or accelerator.type != "cuda":
        return 0  # the function would return a device of another kind
    return _address("libtorch_cpu.so", "aoti_torch_get_current_device_index")


def current_stream_address() -> int:
    """Address of an ``int32_t (int32_t device, void **stream)``, 0 for success; 0 without one."""
    return _address("libtorch_cuda.so", "aoti_torch_get_current_cuda_stream")


def stream_capture_address() -> int:
    """Address of the driver's cuStreamIsCapturing, once CUDA is in use; 0 without a driver."""
    return _address("libcuda.so.1", "cuStreamIsCapturing")


def _address(library: str, name: str) -> int:
    try:
        loaded = ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        return ctypes.cast(getattr(loaded, name), ctypes.c_void_p).value or 0
    except (OSError, AttributeError):
        return 0
