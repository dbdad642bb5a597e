"""Whether a CUDA graph is being captured."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from syncfree._torch_functions import (
    current_device_address,
    current_stream_address,
    stream_capture_address,
)

_has_cuda = torch.backends.cuda.is_built()  # without CUDA the query raises
# The C function behind torch.cuda.is_current_stream_capturing.
_ask_torch: Callable[[], bool] = getattr(
    torch.cuda.graphs, "_cuda_isCurrentStreamCapturing", torch.cuda.is_current_stream_capturing
)


def is_capturing() -> bool:
    """Whether a CUDA graph of the current stream is being captured."""
    # Without a driver `_ask` would raise; `_initialized` is False then and decides first.
    return _has_cuda and torch.cuda._initialized and _ask()


def _ask_torch_here() -> bool:
    # In the forked child of a process that used CUDA the query raises.
    return not torch.cuda._is_in_bad_fork() and _ask_torch()


def _ask_first() -> bool:
    """Picks the query for all later calls: if possible the driver's, in a third of torch's time."""
    global _ask  # noqa: PLW0603  (calling a variable adds no time)
    if torch.cuda._is_in_bad_fork():
        return False
    addresses = current_device_address(), current_stream_address(), stream_capture_address()
    try:
        from syncfree._runtime import is_stream_capturing
    except ImportError:  # built for another Python; the ops do without it
        _ask = _ask_torch_here
    else:
        known = all(addresses)
        _ask = functools.partial(is_stream_capturing, *addresses) if known else _ask_torch_here
    return _ask()


_ask: Callable[[], bool] = _ask_first
