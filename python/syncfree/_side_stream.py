"""The side stream: a CUDA stream for updates of metrics, ordered with the current one by events.

`join` makes the current stream wait for the updates. `keep` and `hand_out` tell the caching
allocator which other stream still uses a tensor (`Tensor.record_stream`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from syncfree._capture import is_capturing

# The attribute of a metric that holds its `SideStream`.
PLACE = "_syncfree_side"


class SideStream:
    """The side stream of one metric, or of a collection or wrapper with all metrics inside it.

    Args:
        copy_inputs: Whether inputs are copied first.
    """

    def __init__(self, copy_inputs: bool = False) -> None:
        self.copy_inputs = copy_inputs
        self._stream: Any = None
        self._inside = False
        self._joined: int | None = None  # the stream that already waits for the last update
        self._was_captured = False

    def run(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls on the side stream, behind the work queued on the current stream so far."""
        if self._inside or is_dynamo_compiling():
            return call(*args, **kwargs)
        tensors = list(_cuda_tensors((args, kwargs)))
        self._was_captured = self._was_captured or (bool(tensors) and is_capturing())
        if self._was_captured or not tensors:
            self.join()
            return call(*args, **kwargs)
        if self.copy_inputs:
            args, kwargs = _copied((args, kwargs))
            tensors = list(_cuda_tensors((args, kwargs)))
        device = tensors[0].device
        if self._stream is None or self._stream.device != device:
            self._open(device)
        self._ready.record(torch.cuda.current_stream(device))
        self._stream.wait_event(self._ready)
        for tensor in tensors:
            self.keep(tensor)
        self._inside = True
        try:
            with torch.cuda.stream(self._stream):
                return call(*args, **kwargs)
        finally:
            # Also after an update that raised halfway.
            self._done.record(self._stream)
            self._joined = None
            self._inside = False

    def join(self) -> None:
        """Makes the current stream wait for all updates; the host does not wait."""
        if self._inside:
            return
        if not is_dynamo_compiling() and is_capturing():
            # A capture cannot wait for an event recorded before it; torch.cuda.graph has waited.
            # From now on what a replay reads must be written on the stream of the replay.
            self._was_captured = True
            return
        if self._stream is None:
            return
        current = torch.cuda.current_stream(self._stream.device)
        if current.cuda_stream != self._joined:
            current.wait_event(self._done)
            self._joined = current.cuda_stream

    def follow(self, other: SideStream) -> None:
        """Takes over a metric that was updated on another side stream."""
        other.join()
        self.copy_inputs = self.copy_inputs or other.copy_inputs
        self._was_captured = self._was_captured or other._was_captured

    def stay_here(self) -> None:
        """Keeps all updates on the current stream, because one has been captured."""
        self._was_captured = True

    def keep(self, tensor: Tensor) -> None:
        """Keeps the memory of a tensor from outside from reuse until the side stream is done."""
        if self._stream is not None and tensor.device == self._stream.device:
            tensor.record_stream(self._stream)

    def hand_out(self, value: Any) -> None:
        """Keeps memory that the side stream allocated from reuse until the current one is done."""
        if self._inside or self._stream is None or is_capturing():
            return
        for tensor in _cuda_tensors(value):
            if tensor.device == self._stream.device:
                tensor.record_stream(torch.cuda.current_stream(tensor.device))

    @property
    def is_inside(self) -> bool:
        """Whether an update is being put on the side stream at this moment."""
        return self._inside

    def _open(self, device: torch.device) -> None:
        self.join()  # the new stream will wait for the current one, and so for earlier updates
        self._stream = torch.cuda.Stream(device)
        self._ready: Any = torch.cuda.Event()
        self._done: Any = torch.cuda.Event()
        self._joined = None

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy gets a stream of its own; it is made with the states after all updates."""
        return SideStream, (self.copy_inputs,)


def _cuda_tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        if value.is_cuda:
            yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _cuda_tensors(each)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _cuda_tensors(each)


def _copied(value: Any) -> Any:
    """The same value with its tensors cloned, on the current stream."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, Mapping):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        copies = map(_copied, value)
        is_named = hasattr(value, "_fields")
        return type(value)(*copies) if is_named else type(value)(copies)
    return value
