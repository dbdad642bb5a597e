"""A GPU, its driver and the host's clock on paper: what each call costs is written down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

BOOST = 1980.0


class SimulatedGpu:
    """One stream. Host and GPU have a time of their own, in microseconds.

    A function under test says what it costs: `host` passes time on the host, `kernel` enqueues
    work, `wait` makes the host wait for all of it.
    """

    kind = "cuda"

    def __init__(self) -> None:
        self.time = 0.0  # of the host
        self.free = 0.0  # when the GPU has done what is enqueued
        self.waking = 0.0  # what the host's first launch after a pause costs
        self.mhz: Callable[[], float] = lambda: BOOST
        self.slept = 0.0  # length of the last pause
        self.allocations = 0
        self.waiting_lines = ""
        self.log: list[str] = []
        self._worked = 0.0

    # The host's clock

    def now(self) -> float:
        return self.time * 1e-6

    def sleep(self, seconds: float) -> None:
        self.time += max(seconds * 1e6, 0.5)
        if seconds >= 1e-3:
            self.slept = seconds
            self.log.append(f"pause {seconds:g}")

    # What functions under test call

    def host(self, us: float) -> None:
        self.time += us

    def kernel(self, us: float) -> None:
        """Work that takes so long at the boost clock."""
        self.host(1.0)
        self._worked += us
        begin = max(self.free, self.time)
        self.free = begin + us * BOOST / self.mhz()

    def wait(self) -> None:
        self.time = max(self.time, self.free)

    # torch

    def describe(self) -> str:
        return "simulated GPU"

    def stream(self) -> int:
        return 7

    def synchronize(self) -> None:
        self.wait()

    def flush_l2(self) -> None:
        self.log.append("flush")
        self.kernel(60.0)

    def fork(self, streams: Sequence[Any]) -> None:
        self.log += [f"fork {each}" for each in streams]

    def join(self, streams: Sequence[Any]) -> None:
        self.log += [f"join {each}" for each in streams]

    def capture(self, call: Callable[..., Any], args: tuple[Any, ...]) -> Callable[[], Any]:
        before = self.time, self.free, self._worked
        call(*args)
        work = self._worked - before[2]
        self.time, self.free, _ = before
        return lambda: self.kernel(work)

    def peak_bytes(self, call: Callable[[], Any]) -> int:
        call()
        return 4096

    def device_allocations(self) -> int:
        return self.allocations

    def waits_of(self, call: Callable[[], Any]) -> str:
        call()
        return self.waiting_lines

    # The driver

    def spin(self, stream: int, microseconds: float) -> None:
        assert stream == 7
        self.log.append("spin")
        self.host(1.0)
        self.free = max(self.free, self.time) + microseconds

    def EventPair(self) -> EventPair:
        return EventPair(self)

    def ClockStamp(self) -> ClockStamp:
        return ClockStamp(self)


class EventPair:
    def __init__(self, gpu: SimulatedGpu) -> None:
        self._gpu = gpu
        self._start = self._stop = float("nan")

    def start(self, stream: int) -> None:
        gpu = self._gpu
        self._start = max(gpu.free, gpu.time)
        # The first launches after a pause are the slow ones.
        if gpu.slept:
            gpu.host(gpu.waking)
        gpu.slept = 0.0

    def stop(self, stream: int) -> None:
        self._stop = max(self._gpu.free, self._gpu.time)

    def ready(self) -> bool:
        return self._gpu.time >= self._stop

    def microseconds(self) -> float:
        assert self.ready()
        return self._stop - self._start


class ClockStamp:
    def __init__(self, gpu: SimulatedGpu) -> None:
        self._gpu = gpu
        self._mhz = self._at = 0.0

    def record(self, stream: int) -> None:
        self._gpu.log.append("stamp")
        self._gpu.free = max(self._gpu.free, self._gpu.time)
        self._at, self._mhz = self._gpu.free, self._gpu.mhz()

    def ready(self) -> bool:
        return self._gpu.time >= self._at

    def mhz_since(self, earlier: ClockStamp) -> float | None:
        assert self.ready()
        return self._mhz if self._at - earlier._at >= 50 else None
