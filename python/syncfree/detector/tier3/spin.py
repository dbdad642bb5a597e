"""Keeps the GPU busy for a known time: a call that returns earlier did not wait."""

from __future__ import annotations

from typing import Any

_cycles_per_ms: dict[int, float] = {}
_TRIAL = 2_000_000  # about 1 ms


class Spin:
    """A kernel that spins for a while on one stream.

    It ends by itself, so that code that waits for it cannot hang.

    Args:
        stream: A `torch.cuda.Stream`.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def start(self, milliseconds: float) -> Any:
        """Queues the kernel, and returns an event recorded behind it."""
        import torch

        with torch.cuda.stream(self._stream):
            torch.cuda._sleep(max(1, int(milliseconds * self._speed())))
            event = torch.cuda.Event()
            event.record(self._stream)
        return event

    def _speed(self) -> float:
        import torch

        index = self._stream.device_index
        if index not in _cycles_per_ms:
            events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            torch.cuda._sleep(_TRIAL)  # the first call loads code
            events[0].record(self._stream)
            torch.cuda._sleep(_TRIAL)
            events[1].record(self._stream)
            events[1].synchronize()
            _cycles_per_ms[index] = _TRIAL / events[0].elapsed_time(events[1])
        return _cycles_per_ms[index]
