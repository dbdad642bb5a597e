"""Functions of headers that share work out on the GPU, compiled for the host."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

from fake_driver import compiled

HERE = Path(__file__).parent


def share_function(source: str, name: str, arguments: str, folder: Path) -> Callable[..., int]:
    """`name` of a source beside this file: 64-bit result, arguments of 32 (i) or 64 (q) bits."""
    target = folder / "libshares.so"
    library = ctypes.CDLL(str(compiled(HERE / source, target, "-I", str(HERE.parent / "csrc"))))
    function = library[name]
    function.restype = ctypes.c_int64
    function.argtypes = [{"i": ctypes.c_int, "q": ctypes.c_int64}[each] for each in arguments]
    return function
