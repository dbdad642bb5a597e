"""Builds tests/fake_libcuda.cpp and drives it: a CUDA driver whose time the test decides."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from ctypes import c_bool, c_char_p, c_double, c_int, c_int64, c_long, c_uint32, c_uint64
from pathlib import Path
from typing import Any

import pytest

from syncfree import _runtime
from syncfree.timing.samples import Sample, from_runtime

SOURCE = Path(__file__).parent / "fake_libcuda.cpp"

SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "reset": (None, []),
    "pass": (None, [c_int64]),
    "work": (None, [c_uint64, c_int64]),
    "busy_until": (c_int64, [c_uint64]),
    "now": (c_int64, []),
    "calls": (c_long, [c_char_p]),
    "unsafe_calls": (c_long, []),
    "events": (c_long, []),
    "set_clock": (None, [c_double, c_uint32]),
    "fail": (None, [c_int]),
    "break_compiler": (None, []),
    "break_events": (None, [c_bool]),
    "set_init": (None, [c_int, c_int]),
    "set_context": (None, [c_uint64]),
    "context": (c_uint64, []),
    "break_device": (None, []),
    "set_costs": (None, [c_int64, c_int64]),
    "begin_capture": (None, [c_uint64]),
    "end_capture": (None, [c_uint64]),
    "replay": (None, [c_uint64, c_uint64]),
}
NEAR = {"rel": 1e-6, "abs": 0.01}  # microseconds; the driver gives floats of milliseconds


class FakeDriver:
    """The functions ``fake_*``; times in microseconds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        library = ctypes.CDLL(str(path))
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(library, f"fake_{name}")
            function.restype, function.argtypes = result, arguments
        self.library = library
        self.stream = 0x55  # that is current
        self.device = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.library, f"fake_{name}")

    def let_pass(self, us: float) -> None:
        self.library.fake_pass(round(us * 1e3))

    def work(self, us: float, stream: int | None = None) -> None:
        self.library.fake_work(self.stream if stream is None else stream, round(us * 1e3))

    def calls(self, name: str) -> int:
        return int(self.library.fake_calls(name.encode()))

    def costs_of_a_record(self, gpu_us: float, host_us: float = 0.0) -> None:
        self.library.fake_set_costs(round(gpu_us * 1e3), round(host_us * 1e3))

    def address(self, name: str) -> int:
        return ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value or 0

    def settle(self, *devices: int) -> None:
        """What the library measures once of a device is known, and in no count of a test."""
        timer = self.timer(capacity=1)
        for self.device in devices:
            run(timer, self, 0)
        self.let_pass(1e4)
        assert timer.poll() == len(devices)
        del timer
        self.device = 0
        self.reset()

    def timer(self, **options: Any) -> _runtime.RegionTimer:
        values = {"stamp_every": 0, "capacity": 64, **options}
        return _runtime.RegionTimer(lambda: self.device, lambda _: self.stream, **values)

    def own_copy(self, folder: Path) -> FakeDriver:
        """One that the library has not met: nothing of its devices is known."""
        copy = folder / f"lib{len(list(folder.iterdir()))}.so"
        copy.write_bytes(self.path.read_bytes())
        return FakeDriver(copy)


def compiled(source: Path, target: Path, *options: str) -> Path:
    compiler = os.environ.get("CXX", "c++")
    command = [compiler, "-std=c++20", "-O1", "-shared", "-fPIC", *options]
    command += ["-o", str(target), str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return target


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(SOURCE, tmp_path_factory.mktemp("fake") / "libfakecuda.so")


@pytest.fixture
def fake(fake_library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    monkeypatch.setenv("SYNCFREE_LIBCUDA", str(fake_library))
    driver = FakeDriver(fake_library)
    driver.reset()
    assert _runtime.cuda_status() == ""
    driver.settle(0, 1, 2)
    yield driver
    driver.reset()


def samples_of(timer: _runtime.RegionTimer, name: str | None = None) -> list[Sample]:
    found = [each for history in from_runtime(timer.histories()) for each in history.samples]
    found = [each for each in found if name in (None, each.name)]
    return sorted(found, key=lambda each: each.sequence)


def run(timer: _runtime.RegionTimer, fake: FakeDriver, us: float, name: str = "r") -> None:
    with timer.region(name):
        fake.work(us)
