"""What timing a region costs the host: syncfree's timer beside torch's events.

A call is a hundred regions, so that the timer's occasional work is part of the figure.
"""

from __future__ import annotations

import time
from functools import partial

import torch

from syncfree.benchmarking.suites.workload import Call, Makers, Workload

REGIONS = 100


def _ours(device: str) -> Call:
    from syncfree import EventTimer

    timer = EventTimer(device, stamp_every=0)

    def call() -> None:
        for _ in range(REGIONS):
            with timer.region("region"):
                pass

    return call


def _new_events() -> None:
    for _ in range(REGIONS):
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        start.record()
        end.record()


def _kept_events() -> Call:
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(REGIONS)]

    def call() -> None:
        for start, end in pairs:
            start.record()
            end.record()

    return call


def _read_events() -> Call:
    """Like syncfree's timer: each pair is read before it is reused, if the GPU has passed it."""
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(REGIONS)]
    for start, end in pairs:
        start.record()
        end.record()

    def call() -> None:
        for start, end in pairs:
            if end.query():
                start.elapsed_time(end)
            start.record()
            end.record()

    return call


def _driver() -> Call:
    """Two records of existing events and little else: the lower bound for a timer by events."""
    from syncfree import _runtime

    pairs = [_runtime.EventPair() for _ in range(REGIONS)]

    def call() -> None:
        stream = torch.cuda.current_stream().cuda_stream
        for pair in pairs:
            pair.start(stream)
            pair.stop(stream)

    return call


def _clock() -> None:
    times = []
    for _ in range(REGIONS):
        start = time.perf_counter()
        times.append(time.perf_counter() - start)


def _workload(device: str) -> Workload:
    contenders: dict[str, Call] = {"syncfree": _ours(device)}
    if device == "cuda":
        contenders["torch.cuda.Event"] = _new_events
        contenders["torch.cuda.Event kept"] = _kept_events()
        contenders["torch.cuda.Event read"] = _read_events()
        contenders["the driver's records"] = _driver()
    else:
        contenders["time.perf_counter"] = _clock
    return Workload(f"{REGIONS} timed regions", device, 0, contenders)


def makers(device: str) -> Makers:
    """The workloads of this suite."""
    yield f"timer-{REGIONS}-regions", partial(_workload, device)
