"""A call of which a launch failed leaves nothing to the stream's next one.

Counts of a kernel that ran were added to those of the next call, as the one behind it, which takes
them away, did not run.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch
from torch.utils.cpp_extension import include_paths

from fake_driver import compiled
from syncfree._installation import find_file

HERE = Path(__file__).parent
TORCH = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    header = find_file("include/syncfree/version.h")
    assert header is not None
    # The fake runtime's headers come before any real one's.
    folders = [HERE / "fake_cudart", HERE.parent / "csrc", header.parent.parent, *include_paths()]
    options = [f"-I{folder}" for folder in folders]
    place = tmp_path_factory.mktemp("failed_launches") / "lib.so"
    ctypes.CDLL(str(TORCH), ctypes.RTLD_GLOBAL)  # what the ops' tensors are freed by
    loaded = ctypes.CDLL(str(compiled(HERE / "failed_launches.cpp", place, *options)))
    for name in ("call_of_the_c_interface", "call_of_an_op"):
        getattr(loaded, name).argtypes = [ctypes.c_bool]
        getattr(loaded, name).restype = ctypes.c_bool
    return loaded


@pytest.mark.parametrize("name", ["call_of_the_c_interface", "call_of_an_op"])
def test_the_next_call_finds_zeros(library: ctypes.CDLL, name: str) -> None:
    call = getattr(library, name)
    for is_launched in (True, False, True, False, False, True):
        assert call(is_launched)
