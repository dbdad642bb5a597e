"""Where the C functions of torch and the driver are that tell device, stream and capture.

They answer as those of ``torch._C`` do, without a call of Python.
"""

from __future__ import annotations

import ctypes
import os

import torch


def current_device_address() -> int:
    """An ``int32_t (int32_t *device)`` that returns 0 for success; 0 if there is none."""
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or accelerator.type != "cuda":
        return 0  # it would tell the device of another kind
    return _address("libtorch_cpu.so", "aoti_torch_get_current_device_index")


def current_stream_address() -> int:
    """An ``int32_t (int32_t device, void **stream)`` that returns 0 for success; 0 if none."""
    return _address("libtorch_cuda.so", "aoti_torch_get_current_cuda_stream")


def stream_capture_address() -> int:
    """The driver's cuStreamIsCapturing, once CUDA is in use; 0 if there is none."""
    return _address("libcuda.so.1", "cuStreamIsCapturing")


def _address(library: str, name: str) -> int:
    try:
        loaded = ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        return ctypes.cast(getattr(loaded, name), ctypes.c_void_p).value or 0
    except (OSError, AttributeError):
        return 0
