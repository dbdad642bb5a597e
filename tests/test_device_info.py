"""What launchers know of a device: read once, and an error where it cannot be read."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from fake_driver import compiled

HERE = Path(__file__).parent
OUT_OF_MEMORY = 2


@pytest.fixture
def device(tmp_path: Path) -> ctypes.CDLL:
    """Of a process that has asked for nothing yet: each test has a library of its own."""
    includes = ["-I", str(HERE / "fake_cudart"), "-I", str(HERE.parent / "csrc")]
    library = ctypes.CDLL(str(compiled(HERE / "device_info.cpp", tmp_path / "lib.so", *includes)))
    library.set.argtypes = [ctypes.c_int, ctypes.c_bool, ctypes.c_bool]
    library.has_error.restype = ctypes.c_bool
    return library


def known(device: ctypes.CDLL) -> tuple[int, int, int, int]:
    return (
        device.multiprocessors(),
        device.compute_capability(),
        device.shared_memory(),
        device.code_architecture(),
    )


def test_each_device_is_read_once(device: ctypes.CDLL) -> None:
    for number in (0, 1, 0, 1):
        device.set(number, False, False)
        assert device.know(number) == 0
        assert known(device) == (100 + number, 90, 227 << 10, 90)
    assert device.times_read() == 2


@pytest.mark.parametrize(("attributes", "code"), [(False, True), (True, False)])
def test_failed_readings_are_not_kept(device: ctypes.CDLL, attributes: bool, code: bool) -> None:
    """A process whose first reading failed launched kernels of another architecture ever after."""
    device.set(0, attributes, code)
    assert device.know(0) == OUT_OF_MEMORY
    assert not device.has_error()  # which the next launch would be taken to have made
    device.set(0, False, False)
    assert known(device) == (100, 90, 227 << 10, 90)


def test_what_is_known_stays(device: ctypes.CDLL) -> None:
    """Plans of one call are made at different times, and must fit each other."""
    device.set(0, False, False)
    assert device.know(0) == 0
    device.set(0, True, True)
    assert device.know(0) == 0
    assert known(device) == (100, 90, 227 << 10, 90)


@pytest.mark.parametrize("number", [63, 64, 1000])
def test_any_number_of_devices(device: ctypes.CDLL, number: int) -> None:
    device.set(number, False, False)
    assert device.know(number) == 0
    assert device.multiprocessors() == 100 + number
    device.set(0, False, False)
    assert device.know(0) == 0
    assert device.multiprocessors() == 100  # nothing was written where others stand
