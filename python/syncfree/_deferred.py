"""Reads tensors back to the host without a wait, for logs and progress bars."""

from __future__ import annotations

import math
from collections import deque
from numbers import Number
from typing import Any

import torch
from torch import Tensor


def deferred(tensor: Tensor) -> Deferred:
    """Begins to copy a tensor to the host and returns at once.

    The copy goes to pinned memory on the current stream, behind the work that makes the tensor.
    Formatting the result shows the newest value that has arrived, so a progress bar prints it
    without making the host wait. ``float(shown)`` is that value too, NaN before the first arrives.
    ``if shown:`` tests whether that value is true, and is false before the first arrives.

    Args:
        tensor: Of any shape and dtype. A value on the CPU is available at once.

    Returns:
        The read-back; give it later tensors with :meth:`Deferred.update`.

    Raises:
        TypeError: If ``tensor`` is no tensor.
        RuntimeError: While a CUDA graph is captured, because the host cannot read from a capture.

    Example:
        >>> import torch
        >>> import syncfree
        >>> loss = syncfree.deferred(torch.tensor(0.25))
        >>> loss.update(torch.tensor(0.125))
        >>> print(f"loss {loss:.3f}")
        loss 0.125
    """
    return Deferred(tensor)


class Deferred:
    """A value on its way to the host; see :func:`deferred`.

    One object may follow a value over many steps: each `update` begins another copy, and the newest
    one that has arrived is shown. Pinned buffers are reused as soon as a newer value has arrived.
    Not safe for use by several threads at once.
    """

    def __init__(self, tensor: Tensor) -> None:
        self._under_way: deque[_Copy] = deque()  # oldest first
        self._free: list[_Copy] = []
        self._arrived: _Copy | None = None
        self._here: Tensor | None = None
        self.update(tensor)

    def update(self, tensor: Tensor) -> None:
        """Begins to copy a newer value.

        Args:
            tensor: Of any shape and dtype, which may differ from the last one's.

        Raises:
            TypeError: If ``tensor`` is no tensor.
            RuntimeError: While a CUDA graph is captured.
        """
        if not isinstance(tensor, Tensor):
            raise TypeError(f"deferred takes a tensor, but got {type(tensor).__name__}")
        if not tensor.is_cuda:
            self._under_way.clear()
            self._arrived = None
            self._here = tensor.detach().to("cpu", copy=True)
            return
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                "deferred() was called while a CUDA graph is captured; call it after the replay, "
                "on a tensor that the graph writes"
            )
        self._collect()
        # A strided copy would be staged through pageable memory, so the host would wait.
        source = tensor.detach().contiguous()
        copy = self._buffer(source)
        copy.begin(source)
        self._under_way.append(copy)

    def ready(self) -> bool:
        """Whether the newest value has arrived. Never waits."""
        self._collect()
        return not self._under_way

    def value(self) -> Tensor:
        """The newest value as a CPU tensor; waits for it if need be."""
        if self._under_way:
            self._under_way[-1].event.synchronize()
        newest = self._newest()
        assert newest is not None
        return newest.clone()

    def latest(self) -> Tensor | None:
        """The newest value that has arrived; None before the first. Never waits."""
        newest = self._newest()
        return None if newest is None else newest.clone()

    def __float__(self) -> float:
        """The newest value that has arrived; NaN before the first. Never waits."""
        newest = self._newest()
        return math.nan if newest is None else float(newest)

    def __bool__(self) -> bool:
        """Whether the newest value that has arrived is true; False before the first. Never waits.

        Raises:
            ValueError: If it does not have exactly one element.
        """
        newest = self._newest()
        if newest is None:
            return False
        if newest.numel() != 1:
            raise ValueError(
                f"Expected a tensor of one element for a truth value, but the newest has shape "
                f"{tuple(newest.shape)}. Defer `tensor.any()` or `tensor.all()`."
            )
        return bool(newest)

    def __int__(self) -> int:
        raise TypeError(
            "int() of a deferred value would have nothing to say before the first has arrived. "
            "Take `int(shown.value())`, which waits for it, or `float(shown)`, NaN until then."
        )

    def _refuse_order(self, other: object) -> bool:
        raise TypeError(
            "A deferred value is not compared itself. Compare `float(shown)`, the newest that has "
            "arrived and NaN before the first, or `shown.value()`, which waits for it."
        )

    __lt__ = __le__ = __gt__ = __ge__ = _refuse_order

    def __eq__(self, other: object) -> bool:
        # Numbers and tensors are refused: the value may be meant. Else equality is identity.
        if isinstance(other, Number | Tensor):
            return self._refuse_order(other)
        return NotImplemented

    __hash__ = object.__hash__

    def __format__(self, spec: str) -> str:
        latest = self.latest()
        if latest is None:
            return format(math.nan, spec) if spec else "not there yet"
        if spec and latest.numel() != 1:
            raise TypeError(
                f"Expected a value of one element for the format {spec!r}, but got shape "
                f"{list(latest.shape)}. Format its elements: `deferred.latest().tolist()`."
            )
        return format(latest.item() if spec or latest.ndim == 0 else latest, spec)

    def __str__(self) -> str:
        return format(self, "")

    def __repr__(self) -> str:
        return f"Deferred({self}, ready={self.ready()})"

    def _newest(self) -> Tensor | None:
        """The newest value that has arrived, in a buffer that later copies overwrite."""
        self._collect()
        return self._here if self._arrived is None else self._arrived.host

    def _collect(self) -> None:
        """Keeps the newest copy that is complete, and frees the buffers of older ones."""
        # Copies on one stream end in order; with several streams the newest complete one counts.
        done = [n for n, copy in enumerate(self._under_way) if copy.event.query()]
        if not done:
            return
        for _ in range(done[-1]):
            self._recycle(self._under_way.popleft())
        if self._arrived is not None:
            self._recycle(self._arrived)
        self._arrived, self._here = self._under_way.popleft(), None

    def _recycle(self, copy: _Copy) -> None:
        # A copy that one on another stream has overtaken may still be writing its buffer.
        if copy.event.query():
            self._free.append(copy)

    def _buffer(self, source: Tensor) -> _Copy:
        for n, copy in enumerate(self._free):
            if copy.fits(source):
                return self._free.pop(n)
        self._free.clear()  # none of them fits
        return _Copy(source)


class _Copy:
    """A pinned buffer and the event recorded after its last copy."""

    def __init__(self, source: Tensor) -> None:
        # The device is explicit, since torch's default device may be a GPU.
        self.host = torch.empty(source.shape, dtype=source.dtype, device="cpu", pin_memory=True)
        self.event: Any = torch.cuda.Event()
        self._kind = _kind(source)

    def fits(self, source: Tensor) -> bool:
        return self._kind == _kind(source)

    def begin(self, source: Tensor) -> None:
        self.host.copy_(source, non_blocking=True)
        self.event.record(torch.cuda.current_stream(source.device))


def _kind(source: Tensor) -> tuple[Any, ...]:
    # An event belongs to the device that it was first recorded on.
    return source.shape, source.dtype, source.device
