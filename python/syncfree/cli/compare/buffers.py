"""Memory that batches and pictures reuse, instead of an allocation for each."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_IDLE_BYTES = 512 << 20
_CLASSES = 4  # sizes for each power of two: at most a fifth of a buffer is not used


@dataclass
class Reuse:
    """How often memory was allocated, how often it was reused, and the most that was held at once.

    Args:
        memory: what it is, in words.
        made: allocations.
        reused: uses of memory that had been allocated before.
        bytes: the most that was held at once.
    """

    memory: str
    made: int = 0
    reused: int = 0
    bytes: int = 0


class Lease:
    """Memory out of a pool, until `release`."""

    def __init__(self, pool: BufferPool, memory: Tensor) -> None:
        self._pool = pool
        self._memory: Tensor | None = memory

    def view(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """The beginning of the memory as a contiguous tensor, whose values are arbitrary."""
        assert self._memory is not None, "the memory was released"
        return _shaped(self._memory, shape, dtype)

    def release(self) -> None:
        """Give the memory back, when nobody uses it any more. Later calls do nothing."""
        memory, self._memory = self._memory, None
        if memory is not None:
            self._pool._take_back(memory)


class BufferPool:
    """Host memory that threads take and give back.

    Pinning memory, and the first touch of its pages, cost more than decoding a small picture.

    Args:
        pinned: page-locked, from which a GPU copies without a wait of the host.

    Example:
        >>> import torch
        >>> from syncfree.cli.compare.buffers import BufferPool
        >>> pool = BufferPool(pinned=False)
        >>> for _ in range(3):
        ...     lease = pool.take(1000)
        ...     picture = lease.view((10, 10, 3), torch.uint8).zero_()
        ...     lease.release()
        >>> pool.reuse.made, pool.reuse.reused
        (1, 2)
    """

    def __init__(self, *, pinned: bool) -> None:
        self.pinned = pinned
        self.reuse = Reuse("pinned host memory" if pinned else "host memory")
        self._lock = threading.Lock()
        self._idle: OrderedDict[int, list[Tensor]] = OrderedDict()  # by size, last used at the end
        self._idle_bytes = 0
        self._bytes = 0

    def take(self, size: int) -> Lease:
        """Memory of at least `size` bytes."""
        rounded = _rounded(size)
        with self._lock:
            found = self._idle.get(rounded)
            if found:
                memory = found.pop()
                self._idle_bytes -= rounded
                self.reuse.reused += 1
                self._idle.move_to_end(rounded)
                return Lease(self, memory)
            self.reuse.made += 1
            self._bytes += rounded
            self.reuse.bytes = max(self.reuse.bytes, self._bytes)
        try:
            # Not under the lock: pinning takes long.
            memory = torch.empty(rounded, dtype=torch.uint8, device="cpu", pin_memory=self.pinned)
            return Lease(self, memory)
        except RuntimeError:
            with self._lock:
                self._bytes -= rounded
            raise

    def _take_back(self, memory: Tensor) -> None:
        with self._lock:
            self._idle.setdefault(memory.nbytes, []).append(memory)
            self._idle.move_to_end(memory.nbytes)
            self._idle_bytes += memory.nbytes
            while self._idle_bytes > _IDLE_BYTES:
                size, oldest = next(iter(self._idle.items()))
                if oldest:
                    oldest.pop()
                    self._idle_bytes -= size
                    self._bytes -= size
                if not oldest:
                    del self._idle[size]


class Scratch:
    """Memory of one stream, or of one thread, that each batch overwrites.

    The batch before no longer needs it, because work on a stream is done in order.

    Args:
        device: of the memory; it is allocated on the stream that is current then.
        reuse: where its use is counted.
    """

    def __init__(self, device: torch.device, reuse: Reuse) -> None:
        self._device = device
        self._reuse = reuse
        self._memory: Tensor | None = None

    def view(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A contiguous tensor whose values are arbitrary; earlier views must not be used again."""
        size = math.prod(shape) * dtype.itemsize
        if self._memory is None or self._memory.nbytes < size:
            self.drop()  # first, so that there need not be room for both
            self._memory = torch.empty(_rounded(size), dtype=torch.uint8, device=self._device)
            self._reuse.made += 1
            self._reuse.bytes += self._memory.nbytes
        else:
            self._reuse.reused += 1
        return _shaped(self._memory, shape, dtype)

    def drop(self) -> None:
        """Let the memory go; the next view allocates."""
        if self._memory is not None:
            self._reuse.bytes -= self._memory.nbytes
        self._memory = None


def _shaped(memory: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return memory[: math.prod(shape) * dtype.itemsize].view(dtype).view(*shape)


def _rounded(size: int) -> int:
    """Rounds up to one of `_CLASSES` sizes per power of two, so that similar pictures share."""
    step = max(512, (1 << max(0, size - 1).bit_length()) // (2 * _CLASSES))
    return -(-size // step) * step
