"""Measures how long a device worked and copied: CUDA events on a GPU, the host's clock on a CPU."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

_COMPACT_AT = 4096
# Times between events are float32 milliseconds: at 10 s they are still good to a microsecond.
_ANCHOR_MS = 10_000.0


@dataclass
class Intervals:
    """Intervals on one time line, with the length of their union.

    Example:
        >>> from syncfree.distributed.busy import Intervals
        >>> intervals = Intervals()
        >>> intervals.add(0.0, 2.0)
        >>> intervals.add(1.0, 4.0)
        >>> intervals.union, intervals.total
        (4.0, 5.0)
    """

    total: float = 0.0
    _closed: float = 0.0
    _pieces: list[tuple[float, float]] = field(default_factory=list)

    def add(self, begin: float, end: float) -> None:
        """Add an interval, in seconds."""
        self.total += end - begin
        self._pieces.append((begin, end))
        if len(self._pieces) >= _COMPACT_AT:
            # Intervals come nearly in order, so no later one meets the older half.
            merged = merge(self._pieces)
            half = len(merged) // 2
            self._closed += sum(end - begin for begin, end in merged[:half])
            self._pieces = merged[half:]

    @property
    def union(self) -> float:
        """Seconds covered by at least one interval."""
        return self._closed + sum(end - begin for begin, end in merge(self._pieces))


def merge(pieces: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The union of intervals as disjoint intervals, in order.

    Example:
        >>> from syncfree.distributed.busy import merge
        >>> merge([(3, 5), (0, 1), (4, 6)])
        [(0, 1), (3, 6)]
    """
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(pieces):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


@dataclass
class Busy:
    """Time that a device spent: `work` on copies and kernels, `transfer` on copies alone."""

    work: Intervals = field(default_factory=Intervals)
    transfer: Intervals = field(default_factory=Intervals)

    @contextmanager
    def on_host(self) -> Iterator[None]:
        """Count the block as work of the CPU."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.work.add(begin, time.perf_counter())


class Span:
    """Two events around work on a stream.

    Args:
        stream: where they are recorded; the first one is recorded at once.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.begin: Any = torch.cuda.Event(enable_timing=True)
        self.end: Any = torch.cuda.Event(enable_timing=True)
        self.begin.record(stream)

    def close(self) -> None:
        """Record the second event."""
        self.end.record(self._stream)


class EventClock:
    """Puts spans of one GPU on one time line, without a wait.

    Args:
        stream: of the GPU that is timed.
        busy: where the spans are added.
    """

    def __init__(self, stream: Any, busy: Busy) -> None:
        self._busy = busy
        self._anchor: Any = torch.cuda.Event(enable_timing=True)
        self._anchor.record(stream)
        self._anchor_seconds = 0.0

    def add(self, span: Span, *, transfer: bool = False) -> None:
        """Add a span whose work is known to be complete."""
        after = self._anchor.elapsed_time(span.begin)
        begin = self._anchor_seconds + after / 1e3
        end = begin + span.begin.elapsed_time(span.end) / 1e3
        self._busy.work.add(begin, end)
        if transfer:
            self._busy.transfer.add(begin, end)
        if after > _ANCHOR_MS:
            self._anchor, self._anchor_seconds = span.begin, begin
