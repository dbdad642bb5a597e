"""Raises errors that CUDA kernels leave for the host, and names the metric and the call.

A kernel must not raise. It writes the first bad label of a call, and the number of bad ones, into
memory that the host reads like any variable (csrc/core/error_record.h). A slot is the part of that
memory that belongs to one metric. Ops check it on entry and raise the error that they find there.
The slot and the number of the call travel in the ``options`` of an op. The text of an error holds
both in a mark, which is replaced here by the metric's class and the line of the call.
"""

from __future__ import annotations

import atexit
import re
import sys
import warnings
import weakref
from collections import deque
from contextlib import suppress

import torch
import torch.distributed as dist
from torch.compiler import is_dynamo_compiling

from syncfree._call_places import call_places, line_of
from syncfree._ops import registry  # noqa: F401  (loads the libraries)

# As in csrc/ops/accuracy_error.h.
_SLOT_SHIFT, _SLOT_BITS = 8, 12
_CALL_SHIFT = _SLOT_SHIFT + _SLOT_BITS
_MARK = re.compile(r" \[syncfree metric (\d+), call (\d+)\]")

# Slot 0 belongs to the functions, and to metrics for which no slot is left. A returned slot is
# handed out last: kernels of its former metric may still be running.
_free = deque(range(1, 1 << _SLOT_BITS))
_owners: dict[int, str] = {}
_orphans: list[str] = []  # errors of collected metrics whose slots others have taken over


def new_slot(metric: object) -> int:
    """A slot for the errors of ``metric``, returned when the metric is garbage-collected.

    A copy of a metric needs a slot of its own.
    """
    try:
        slot = _free.popleft()
    except IndexError:
        return 0
    if slot in _owners and (text := _take(slot)):
        _orphans.append(text)
    _owners[slot] = type(metric).__name__
    weakref.finalize(metric, _free.append, slot).atexit = False
    return slot


_places = call_places(_CALL_SHIFT)
# Adds a number for this call to an op's options; an error finds the line of the call by it.
with_call = _places.note


def slot_bits(slot: int) -> int:
    """The bits of a slot in the options of an op."""
    return slot << _SLOT_SHIFT


def _origin(mark: re.Match[str]) -> str:
    slot, number = map(int, mark.groups())
    text = f" Metric: {_owners[slot]}." if slot in _owners else ""
    if (place := _places.find(number)) is not None:
        code, instruction = place
        text += f' Call: file "{code.co_filename}", line {line_of(code, instruction)}.'
    return text


def explain(error: RuntimeError) -> RuntimeError:
    """An op's error, its mark replaced by the metric's class and the line of the call."""
    if error.args and isinstance(error.args[0], str):
        error.args = (_MARK.sub(_origin, error.args[0]), *error.args[1:])
    return error


def _take(slot: int) -> str:
    """Takes the errors recorded so far in one slot, or in all if it is negative. Never waits."""
    if not torch.cuda.is_initialized():
        return ""
    text: str = torch.ops.syncfree.take_error_record(-1, slot)
    return _MARK.sub(_origin, text)


def raise_pending(slot: int) -> None:
    """Raises RuntimeError for errors that kernels have recorded in this slot. Never waits.

    Compiled code leaves this to its ops, which check on entry.
    """
    if is_dynamo_compiling():
        return
    text = _take(slot)
    if text:
        raise RuntimeError(text)


def check_errors() -> None:
    """Waits for all CUDA devices and raises if a metric met labels out of range since last time.

    A metric on CUDA does not wait to look at its values. A label out of range is left out of the
    counts, the result becomes NaN, and a record of it is kept, from which the host raises an error:
    at the next call of the same metric, at its ``compute()``, or here. This function waits, so that
    nothing is missed. On the CPU such labels raise at once and this function does nothing.

    Returns:
        Nothing, if all was well.

    Raises:
        RuntimeError: Names the argument, the first bad value and its flat index, how many there
            were in that call, what was allowed, the device, and the metric with the line of the
            call; a line for each metric. The records are cleared.

    Example:
        >>> import syncfree
        >>> syncfree.check_errors()
    """
    if not torch.cuda.is_initialized():
        return
    wait()
    raise_all()


def raise_all() -> None:
    """As `raise_pending` for all metrics and functions, a line for each."""
    text = _take_all()
    if text:
        raise RuntimeError(text)


def _take_all() -> str:
    lines = [*_orphans, _take(-1)]
    _orphans.clear()
    return "\n".join(filter(None, lines))


def wait() -> None:
    """Waits for all kernels that may still record an error."""
    for device in range(torch.cuda.device_count()):
        # Synchronizing with a device that was never used would create a context there.
        if torch.ops.syncfree.has_error_record(device):
            torch.cuda.synchronize(device)


def _all_kernels_end() -> bool:
    """False if a collective may be pending that never ends, since other processes never join it."""
    in_group = dist.is_available() and dist.is_initialized()
    return not in_group and not hasattr(sys, "last_value")


@atexit.register
def _warn_of_unread() -> None:
    if torch.cuda.is_initialized() and _all_kernels_end():
        with suppress(RuntimeError):  # an error of the program's kernels; records are still read
            wait()
    text = _take_all()
    if text:
        warnings.warn(f"Never read before the end of the program: {text}", stacklevel=1)
