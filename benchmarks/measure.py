"""How a call is timed: on the GPU by events behind a gate, on the host by the clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

# Long enough for the host to enqueue one call, short against a run.
GATE_CYCLES = 4_000_000  # about 2 ms at 2 GHz


@dataclass(frozen=True)
class Timing:
    """Medians, in microseconds."""

    device_us: float  # the work itself: GPU time, or CPU wall time
    host_us: float  # what one of many back-to-back calls costs the caller
    samples: int


def time_cpu(fn: Callable[[], object], seconds: float = 0.6, least: int = 5) -> Timing:
    """Wall time of each call, after a warm-up."""
    fn()
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < least or time.perf_counter() < end:
        start = time.perf_counter()
        fn()
        samples.append((time.perf_counter() - start) * 1e6)
    median = statistics.median(samples)
    return Timing(median, median, len(samples))


def time_cuda(fn: Callable[[], object], samples: int = 21) -> Timing:
    """GPU time between two events, with the work enqueued behind a spinning kernel.

    The spin hides the host's launch time, so that what lies between the events is GPU work and the
    gaps between dependent kernels, not the time the host took to launch them.
    """
    for _ in range(3):
        fn()
    torch.cuda.synchronize()
    times = []
    for _ in range(samples):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(GATE_CYCLES)
        start.record()
        fn()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return Timing(statistics.median(times), host_time(fn), samples)


def host_time(fn: Callable[[], object], calls: int = 50, rounds: int = 7) -> float:
    """Microseconds of host time a call, back to back, best of several rounds."""
    best = float("inf")
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            fn()
        best = min(best, (time.perf_counter() - start) / calls * 1e6)
    torch.cuda.synchronize()
    return best


def count_launches(fn: Callable[[], object], calls: int = 10) -> float:
    """Kernels, copies and fills that a call puts on the GPU."""
    fn()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(calls):
            fn()
        torch.cuda.synchronize()
    on_gpu = torch.autograd.DeviceType.CUDA
    return sum(event.device_type == on_gpu for event in profile.events()) / calls


def read_bandwidth(device: str) -> float:
    """Bytes a second that this device reads: a plain sum over 2 GiB (GPU) or 256 MiB (CPU)."""
    gpu = device == "cuda"
    x = torch.ones((2**31 if gpu else 2**28) // 4, device=device)
    timing = (time_cuda if gpu else time_cpu)(lambda: x.sum())
    return x.numel() * 4 / (timing.device_us * 1e-6)
