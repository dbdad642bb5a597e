"""Memory that a stream keeps is zero when a call gets it, whatever became of the calls before."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import pytest

from fake_driver import compiled

HERE = Path(__file__).parent
NOTHING_LENT, ZEROS = -1, 1


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    includes = ["-I", str(HERE / "fake_cudart"), "-I", str(HERE.parent / "csrc")]
    place = tmp_path_factory.mktemp("kept_workspace") / "lib.so"
    return compiled(HERE / "kept_workspace.cpp", place, *includes)


@pytest.fixture
def streams(program: Path, tmp_path: Path) -> ctypes.CDLL:
    """Of a process that keeps nothing yet: each test has a copy of the library."""
    library = ctypes.CDLL(str(shutil.copy(program, tmp_path / "lib.so")))
    library.call.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_bool]
    library.set.argtypes = [ctypes.c_bool, ctypes.c_bool]
    return library


@pytest.mark.parametrize("pools", [True, False], ids=["pools", "no pools"])
def test_calls_that_went_well(streams: ctypes.CDLL, pools: bool) -> None:
    streams.set(pools, False)
    for size in (256, 256, 1024, 512):
        assert [streams.call(stream, size, True) for stream in (1, 2)] == [ZEROS, ZEROS]


@pytest.mark.parametrize("next_size", [256, 1024, 4096])
def test_a_call_whose_last_launch_failed(streams: ctypes.CDLL, next_size: int) -> None:
    """What its first kernel had added was counted by the next call of the stream."""
    assert streams.call(1, 1024, False) == ZEROS
    for _ in range(2):
        assert streams.call(1, next_size, True) == ZEROS
    assert streams.call(1, 1024, True) == ZEROS


def test_memory_that_could_not_be_zeroed(streams: ctypes.CDLL) -> None:
    streams.set(True, True)
    assert streams.call(1, 256, True) == NOTHING_LENT
    streams.set(True, False)
    assert streams.call(1, 256, True) == ZEROS
    assert streams.call(1, 256, False) == ZEROS
    streams.set(True, True)
    assert streams.call(1, 256, True) == NOTHING_LENT
    streams.set(True, False)
    assert streams.call(1, 256, True) == ZEROS
