"""Slots of errors are allocated in the context of their own GPU.

In that of another one, which may be current by default, the allocation would make a context there,
which takes hundreds of megabytes.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch
from torch.utils.cpp_extension import include_paths

from fake_driver import compiled

HERE = Path(__file__).parent
TORCH = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"


def test_the_slots_of_counts_on_the_second_gpu(tmp_path: Path) -> None:
    # The fake runtime's headers come before any real one's.
    folders = [HERE / "fake_cudart", HERE.parent / "csrc", *include_paths()]
    options = [f"-I{folder}" for folder in folders]
    ctypes.CDLL(str(TORCH), ctypes.RTLD_GLOBAL)  # whose tensors the op takes
    source = HERE / "error_slots.cpp"
    library = ctypes.CDLL(str(compiled(source, tmp_path / "error_slots.so", *options)))
    assert library.device_of_the_slots() == 1
