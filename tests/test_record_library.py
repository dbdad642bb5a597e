"""The library that tells of torch's operators, called as the detector calls it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import CFUNCTYPE, c_bool, c_char_p, c_int64, c_uint64, c_void_p

import pytest
import torch

from syncfree._libraries import find
from syncfree.detector.operators import library_name

Begin = CFUNCTYPE(None, c_void_p, c_char_p, c_bool, c_int64, c_uint64)
End = CFUNCTYPE(None, c_void_p, c_uint64, c_uint64)


class Listener(ctypes.Structure):
    """An OpListener (csrc/runtime/op_listener.h) that notes the names of operators."""

    _fields_ = (("begin", Begin), ("end", End))

    def __init__(self) -> None:
        self.names: list[bytes] = []
        super().__init__(Begin(self._begin), End(lambda *_: None))

    def _begin(self, _op: int, name: bytes, *_: int) -> None:
        self.names.append(name)


@pytest.fixture
def library() -> Iterator[ctypes.CDLL]:
    found = find(library_name(torch.__version__))
    assert found is not None
    loaded = ctypes.CDLL(str(found))
    yield loaded
    loaded.syncfree_record_stop()


def test_a_second_start_takes_the_place_of_the_first(library: ctypes.CDLL) -> None:
    first, second = Listener(), Listener()
    x = torch.ones(2)
    for each in (first, second):
        library.syncfree_record_start(ctypes.byref(each))
    x.exp()
    assert (first.names, second.names) == ([], [b"aten::exp"])
    library.syncfree_record_stop()
    x.exp()
    assert second.names == [b"aten::exp"]
    library.syncfree_record_stop()  # nothing is left to stop
    library.syncfree_record_start(ctypes.byref(first))
    x.exp()
    assert first.names == [b"aten::exp"]
