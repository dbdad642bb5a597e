"""When each stage of a comparison was at work: threads by the host's clock, a GPU by its events.

A span is one stretch of work of a stage, on a thread or a stream.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

import torch

from syncfree.distributed.busy import merge
from syncfree.timing.samples import Kind
from syncfree.timing.timer import EventTimer

DECODE, ENQUEUE, UPLOAD, COMPUTE, READ_BACK, MAPS = STAGES = (
    "decode",
    "enqueue",
    "host-to-device",
    "compute",
    "device-to-host",
    "maps",
)

Interval = tuple[float, float]

_COMPACT_AT = 4096
_NEWEST = 400  # spans of a stage that a plot shows
_COLLECT_EVERY = 128  # batches; the timer keeps 1024 samples of a stage


@dataclass
class Spans:
    """When a stage was at work, in seconds of `time.perf_counter`.

    Args:
        count: number of spans.
        seconds: of all spans; those that overlap count in full.
        bytes: that were moved.
        newest: the latest spans.
    """

    count: int = 0
    seconds: float = 0.0
    bytes: int = 0
    newest: deque[Interval] = field(default_factory=lambda: deque(maxlen=_NEWEST))
    _pieces: list[Interval] = field(default_factory=list)

    def add(self, begin: float, end: float, size: int = 0) -> None:
        """Add a span."""
        self.count += 1
        self.seconds += end - begin
        self.bytes += size
        self.newest.append((begin, end))
        self._pieces.append((begin, end))
        if len(self._pieces) % _COMPACT_AT == 0:
            self._pieces = merge(self._pieces)

    def union(self) -> list[Interval]:
        """The time covered by at least one span, as disjoint intervals."""
        return merge(self._pieces)


def length(intervals: Iterable[Interval]) -> float:
    """Total seconds of disjoint intervals."""
    return sum(end - begin for begin, end in intervals)


class Stages:
    """Times nothing: what a comparison without `--profile` does."""

    def on_host(self, stage: str) -> AbstractContextManager[object]:
        """A span on the calling thread."""
        return nullcontext()

    def on_device(
        self, stage: str, kind: Kind = "compute", size: int | None = None
    ) -> AbstractContextManager[object]:
        """A span on the current stream, or on the calling thread without a GPU."""
        return nullcontext()

    def landed(self) -> None:
        """A batch has passed all stages."""


class StageClock(Stages):
    """Collects the spans of every stage.

    The GPU's spans come from an `EventTimer`, whose times are on the host's time axis, so that the
    overlap of threads and streams is known. It never waits.

    Args:
        device: that measures.
    """

    def __init__(self, device: torch.device) -> None:
        # Clock stamps would be kernels between the batches.
        self._timer = EventTimer(device, stamp_every=0)
        self._lock = threading.Lock()
        self._spans = {stage: Spans() for stage in STAGES}
        self._seen: dict[str, set[int]] = {}
        self._landed = 0

    @contextmanager
    def on_host(self, stage: str) -> Iterator[None]:
        """A span on the calling thread; one that raises does not count."""
        begin = time.perf_counter()
        yield
        end = time.perf_counter()
        with self._lock:
            self._spans[stage].add(begin, end)

    @contextmanager
    def on_device(
        self, stage: str, kind: Kind = "compute", size: int | None = None
    ) -> Iterator[None]:
        """A span on the current stream; one that raises does not count."""
        region = self._timer.start(stage, kind, bytes=size)
        try:
            yield
        except BaseException:
            region.cancel()
            raise
        region.stop()

    def landed(self) -> None:
        """A batch has passed all stages."""
        self._landed += 1
        if self._landed % _COLLECT_EVERY == 0:
            self._collect()

    def spans(self) -> dict[str, Spans]:
        """The spans of all stages that occurred, in order. Call it when all work is done."""
        self._collect()
        return {stage: spans for stage, spans in self._spans.items() if spans.count}

    @property
    def notes(self) -> list[str]:
        """What the timer could not see."""
        counts = self._timer.counts()
        missing = counts["dropped"] + counts["skipped"] + counts["lost"] + counts["pending"]
        return [f"{missing} spans of the device are missing"] if missing else []

    def _collect(self) -> None:
        for history in self._timer.recording().histories:
            seen = self._seen.get(history.name, set())
            for sample in history.samples:
                if sample.sequence not in seen:
                    begin = sample.gpu_start_us * 1e-6
                    end = begin + sample.gpu_us * 1e-6
                    self._spans[history.name].add(begin, end, sample.bytes or 0)
            # Streams end out of order, so the newest sequence does not tell which samples are new.
            self._seen[history.name] = {sample.sequence for sample in history.samples}
