"""Streams and events of the virtual device, which has finished all work when a call returns."""

from __future__ import annotations

import threading
import time
from itertools import count
from typing import Any

from syncfree.detector.tier0.recording import record
from syncfree.detector.tier0.residence import CUDA

_WAIT = "The host waits until the GPU has done everything queued in {}."
_numbers = count(1)


class Stream:
    """As `torch.Stream`."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.device = CUDA
        self.priority = priority
        self.cuda_stream = self.stream_id = next(_numbers)
        self._before: list[Stream] = []

    def synchronize(self) -> None:
        """Records a wait."""
        record("torch.cuda.Stream.synchronize", _WAIT.format("the stream"))

    def query(self) -> bool:
        """Whether all work is done."""
        return True

    def is_capturing(self) -> bool:
        """Whether a CUDA graph is being captured."""
        return False

    def wait_event(self, event: Event) -> None:
        """Orders the GPU, not the host."""

    def wait_stream(self, stream: Stream) -> None:
        """Orders the GPU, not the host."""

    def record_event(self, event: Event | None = None) -> Event:
        """Records an event behind the work queued so far."""
        event = event or CudaEvent()
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        self._before.append(current_stream())
        set_stream(self)
        return self

    def __exit__(self, *_: Any) -> None:
        set_stream(self._before.pop())

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class Event:
    """As `torch.Event`; times are the host's."""

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
        **_: Any,
    ) -> None:
        self.device = CUDA
        self._timing = enable_timing
        self._time: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Stores the current time."""
        self._time = time.perf_counter()

    def wait(self, stream: Stream | None = None) -> None:
        """Orders the GPU, not the host."""

    def query(self) -> bool:
        """Whether all work before the event is done."""
        return True

    def synchronize(self) -> None:
        """Records a wait."""
        record("torch.cuda.Event.synchronize", _WAIT.format("front of the event"))

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds between the records of the two events."""
        if not (self._timing and end_event._timing):
            raise ValueError(
                "Both events must be created with argument 'enable_timing=True' to measure time."
            )
        if self._time is None or end_event._time is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._time - self._time) * 1e3

    def __repr__(self) -> str:
        return "<torch.cuda.Event>"


class CudaStream(Stream):
    """As `torch.cuda.Stream`."""


class CudaEvent(Event):
    """As `torch.cuda.Event`."""


class StreamContext:
    """As the result of `torch.cuda.stream(...)`; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> Stream | None:
        return self.stream.__enter__() if self.stream is not None else None

    def __exit__(self, *details: Any) -> None:
        if self.stream is not None:
            self.stream.__exit__(*details)


_default = CudaStream()
_default.cuda_stream = _default.stream_id = 0
_thread = threading.local()


def stream(stream: Stream | None) -> StreamContext:
    """As `torch.cuda.stream`."""
    return StreamContext(stream)


def current_stream(device: Any = None) -> Stream:
    """The current stream of this thread."""
    current: Stream = getattr(_thread, "stream", _default)
    return current


def default_stream(device: Any = None) -> Stream:
    """The stream that a thread starts with."""
    return _default


def set_stream(stream: Stream | None) -> None:
    """Changes this thread's current stream."""
    if stream is not None:
        _thread.stream = stream
