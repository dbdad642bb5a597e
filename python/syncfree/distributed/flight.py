"""Keeps a few batches in flight on a device, and makes them smaller when memory runs out.

A batch is in flight, or under way, from its submission until it lands: until it was waited for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

import torch

BATCHES_IN_FLIGHT = 3


class UnderWay(Protocol):
    """Work that was submitted to a device."""

    def wait(self) -> None:
        """Return when it is done."""
        ...


Item = TypeVar("Item")
Work = TypeVar("Work", bound=UnderWay)


class Flight(Generic[Item, Work]):
    """Submits batches, a few ahead of the one that is waited for, so that the device stays busy.

    A batch that does not fit into memory is tried again when those under way have landed, and then
    in halves. From then on no batch is larger than the one that fitted.

    Args:
        submit: starts work on a batch.
        depth: batches under way at once; with 0 each batch lands as soon as it is sent, for a
            device on which `submit` itself does the work.
    """

    def __init__(
        self, submit: Callable[[Sequence[Item]], Work], depth: int = BATCHES_IN_FLIGHT
    ) -> None:
        self._submit = submit
        self._depth = depth
        self._most: int | None = None
        self._flying: deque[Work] = deque()

    def send(self, batch: Sequence[Item]) -> Iterator[Work | tuple[Sequence[Item], Exception]]:
        """Submit a batch; yields work that has landed meanwhile, and batches that failed.

        Only a single item that does not fit alone fails for lack of memory. Other errors of the
        submission fail the batch, except import errors, which are raised.
        """
        rest = batch
        while rest:
            part = rest[: self._most]
            try:
                work = self._submit(part)
            except ImportError:  # such as a missing library of ours, which every batch needs
                raise
            except Exception as error:
                alone = not self._flying
                if not is_out_of_memory(error) or (len(part) == 1 and alone):
                    rest = rest[len(part) :]
                    yield part, error
                    continue
            else:
                rest = rest[len(part) :]
                self._flying.append(work)
                if len(self._flying) > self._depth:
                    yield self._land()
                continue
            # Outside the handler, whose traceback would keep the failed batch's tensors alive.
            yield from self.land_all()
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()
            if alone:
                self._most = (len(part) + 1) // 2

    def land_all(self, but: int = 0) -> Iterator[Work]:
        """Wait for all batches under way, oldest first, except the latest ``but``."""
        while len(self._flying) > but:
            yield self._land()

    def _land(self) -> Work:
        work = self._flying.popleft()
        work.wait()
        return work


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this is torch's error for memory that a device, or the host, does not have.

    Example:
        >>> import torch
        >>> from syncfree.distributed.flight import is_out_of_memory
        >>> is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
        True
        >>> is_out_of_memory(RuntimeError("shapes differ"))
        False
    """
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def free_bytes(device: torch.device) -> int | None:
    """Memory of a GPU that is free or only cached by torch; `None` for a CPU."""
    if device.type != "cuda":
        return None
    free: Any
    free, _ = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(free) + cached
