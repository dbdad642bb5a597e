"""Builds and drives fake_cupti.cpp, so that tier 3 runs without a GPU."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from syncfree.detector import Report
from syncfree.detector import tiers as tiers_module
from syncfree.detector.tier3 import library as library_module
from syncfree.detector.tier3 import tier as tier_module

HOST, DEVICE = 1, 2  # CUmemorytype
MIB = 1 << 20
# Addresses that the stand-in's driver knows, and one that it does not.
PAGEABLE, PINNED, ON_DEVICE = 0x1000, 0x10_0000, 0x7000_0000

WAITS = {
    "cuStreamSynchronize": "cuStreamSynchronize",
    "cuStreamSynchronize_ptsz": "cuStreamSynchronize",
    "cuCtxSynchronize_v2": "cuCtxSynchronize",
    "cuEventSynchronize": "cuEventSynchronize",
}

_built: dict[str, FakeCupti] = {}


class FakeCupti:
    """The library, and calls to make through it.

    A call is a partial function of C, so that the innermost Python frame is the line that makes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.library = ctypes.CDLL(str(path))
        self.library.fake_memory.argtypes = [ctypes.c_uint64, ctypes.c_uint64, *[ctypes.c_int] * 2]
        self.library.fake_call.argtypes = [
            ctypes.c_char_p,
            ctypes.c_char_p,
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_longlong,
            ctypes.c_int,
        ]
        self.library.fake_many.argtypes = [
            ctypes.c_char_p,
            ctypes.c_void_p,
            *[ctypes.c_int] * 3,
            ctypes.c_char_p,
        ]
        self.library.fake_half.argtypes = [
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_void_p,
            ctypes.c_int,
        ]
        for name in ("fake_memory", "fake_call", "fake_many", "fake_half", "fake_reset"):
            getattr(self.library, name).restype = None
        self._kept: list[object] = []

    def call(
        self,
        driver: str,
        *words: int,
        runtime: str = "",
        result: int = 0,
        ms: float = 0,
        reaches: bool = False,
    ) -> Callable[[], None]:
        """One call with its argument words, which takes a time."""
        arguments = self.arguments(*words)
        return partial(
            self.library.fake_call,
            runtime.encode(),
            driver.encode(),
            arguments,
            result,
            int(ms * 1e6),
            int(reaches),
        )

    def arguments(self, *words: int) -> ctypes.Array:
        """Argument words in memory that stays."""
        array = (ctypes.c_uint64 * max(len(words), 1))(*words)
        self._kept.append(array)
        return array

    def many(
        self, driver: str, calls: int, *, threads: int = 0, name: str = "", result: int = 0
    ) -> None:
        """The same call again and again."""
        self.library.fake_many(
            driver.encode(), self.arguments(*[0] * 8), result, calls, threads, name.encode()
        )

    def half(self, site: int, driver: str) -> None:
        """Only the beginning (0) or the end (1) of a call."""
        self.library.fake_half(site, driver.encode(), self.arguments(*[0] * 8), 0)

    def backward(self, listener: int, sequence: int, forward: int, driver: str) -> None:
        """A call inside of a node of autograd, in a thread that Python does not know."""
        self.library.fake_backward(
            *(ctypes.c_void_p(listener), ctypes.c_int64(sequence), ctypes.c_uint64(forward)),
            *(driver.encode(), self.arguments(*[0] * 8)),
        )

    def node_in_node(self, listener: int, sequence: int, forward: int, made: int, by: int) -> None:
        """A node makes a node, in a thread that Python does not know."""
        self.library.fake_node_in_node(
            *(ctypes.c_void_p(listener), ctypes.c_int64(sequence), ctypes.c_uint64(forward)),
            *(ctypes.c_int64(made), ctypes.c_uint64(by)),
        )

    def operators(self, listener: int, first: int, count: int, thread: int) -> Callable[[], None]:
        """Operators one after the other, each of which makes a node."""
        return partial(
            self.library.fake_operators,
            *(ctypes.c_void_p(listener), ctypes.c_int64(first), ctypes.c_int64(count)),
            ctypes.c_uint64(thread),
        )

    def is_enabled(self, name: str) -> bool:
        return bool(self.library.fake_is_enabled(name.encode()))

    def host_memory(self, size: int = 64) -> int:
        """An address of ordinary memory: pages of its own, for others may be registered."""
        memory = ctypes.c_char.from_buffer(mmap.mmap(-1, size))
        self._kept.append(memory)
        return ctypes.addressof(memory)


def build(folder: Path) -> FakeCupti:
    """Compiles it once in a process."""
    if "fake" not in _built:
        path = folder / "libfakecupti.so"
        source = Path(__file__).with_suffix(".cpp")
        compiler = os.environ.get("CXX", "c++")
        subprocess.run(
            [compiler, "-std=c++17", "-O1", "-shared", "-fPIC", "-pthread", source, "-o", path],
            check=True,
        )
        _built["fake"] = FakeCupti(path)
    return _built["fake"]


def installed(
    monkeypatch: pytest.MonkeyPatch, folders: pytest.TempPathFactory
) -> Iterator[FakeCupti]:
    """Tier 3 takes the stand-in for CUPTI and for the driver; the body of a fixture."""
    fake = build(folders.mktemp("cupti"))
    monkeypatch.setenv(library_module.OVERRIDE, str(fake.path))
    monkeypatch.setenv(library_module.DRIVER_OVERRIDE, str(fake.path))
    monkeypatch.setattr(tiers_module, "has_gpu", lambda: True)
    monkeypatch.setattr(tiers_module, "_said", set())
    monkeypatch.setattr(tier_module, "waiting_size", lambda: MIB)
    fake.library.fake_reset()
    fake.library.fake_memory(PINNED, 64 * MIB, HOST, 0)
    fake.library.fake_memory(ON_DEVICE, 64 * MIB, DEVICE, 0)
    yield fake
    assert not fake.library.fake_is_subscribed(), "the last region did not unsubscribe"


def found(report: Report) -> dict[str, tuple[str, int]]:
    """Verdict and count by the line's comment."""
    return {
        each.source.rpartition("# ")[2]: (each.event.verdict.value, each.count)
        for each in report.findings
    }
