"""A CUDA stream beside the current one, the events that order the two, and memory kept for both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from syncfree._capture import is_capturing

# The attribute of a metric under which its side stream stands.
PLACE = "_syncfree_side"


class SideStream:
    """The stream of one metric, or of all that belong together, and the events that order it.

    Args:
        copy_inputs: Whether inputs are copied first.
    """

    def __init__(self, copy_inputs: bool = False) -> None:
        self.copy_inputs = copy_inputs
        self._stream: Any = None
        self._inside = False
        self._joined: int | None = None  # the stream that knows of the last update already
        self._was_captured = False

    def run(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls on the side stream, behind what the current stream has been given so far."""
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
            # Also behind a part of an update that raised.
            self._done.record(self._stream)
            self._joined = None
            self._inside = False

    def join(self) -> None:
        """Orders the current stream behind all updates; the host does not wait."""
        if self._inside:
            return
        if not is_dynamo_compiling() and is_capturing():
            # An event from before a capture cannot be waited for in it; torch.cuda.graph has
            # waited. What a replay is going to read must be written on its stream from now on.
            self._was_captured = True
            return
        if self._stream is None:
            return
        current = torch.cuda.current_stream(self._stream.device)
        if current.cuda_stream != self._joined:
            current.wait_event(self._done)
            self._joined = current.cuda_stream

    def follow(self, other: SideStream) -> None:
        """Takes over a metric that was updated on another one."""
        other.join()
        self._was_captured = self._was_captured or other._was_captured

    def stay_here(self) -> None:
        """Leaves all updates on the current stream, for the sake of a captured one."""
        self._was_captured = True

    def keep(self, tensor: Tensor) -> None:
        """Leaves the memory of a tensor from outside alone until the side stream is through."""
        if self._stream is not None and tensor.device == self._stream.device:
            tensor.record_stream(self._stream)

    def hand_out(self, value: Any) -> None:
        """Leaves memory that the side stream allocated alone until the current one is through."""
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
        self.join()  # the current stream is going to be waited for, and so what it waits for
        self._stream = torch.cuda.Stream(device)
        self._ready: Any = torch.cuda.Event()
        self._done: Any = torch.cuda.Event()
        self._joined = None

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has the states of after all updates, and a stream of its own."""
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
    """The same with copies of tensors, which the current stream makes."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, Mapping):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        copies = map(_copied, value)
        is_named = hasattr(value, "_fields")
        return type(value)(*copies) if is_named else type(value)(copies)
    return value
