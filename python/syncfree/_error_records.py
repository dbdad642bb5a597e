"""Errors that CUDA kernels leave for the host: whose they are, where the call was, raising them.

A kernel must not raise. It writes the first bad label of a call, with their count, into memory that
the host reads like any variable (csrc/core/error_record.h), at a place that belongs to one metric:
its slot. Ops look there on entry and raise what they find. A slot and the number of the call travel
in the ``options`` of an op.
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

# csrc/ops/accuracy_error.h
_SLOT_SHIFT, _SLOT_BITS = 8, 12
_CALL_SHIFT = _SLOT_SHIFT + _SLOT_BITS
_MARK = re.compile(r" \[syncfree metric (\d+), call (\d+)\]")

# Slot 0 is that of the functions, and of metrics beyond the number of slots. One that comes back is
# handed out last: kernels of its metric may still be running.
_free = deque(range(1, 1 << _SLOT_BITS))
_owners: dict[int, str] = {}
_orphans: list[str] = []  # errors of metrics that are gone, and whose slots others have now


def new_slot(metric: object) -> int:
    """A place for the errors of ``metric``, given back when that is collected.

    A copy of a metric needs one of its own.
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
# The options of an op with a number for this call, by which an error finds its line.
with_call = _places.note


def slot_bits(slot: int) -> int:
    """A slot as the options of an op take it."""
    return slot << _SLOT_SHIFT


def _origin(mark: re.Match[str]) -> str:
    slot, number = map(int, mark.groups())
    text = f" Metric: {_owners[slot]}." if slot in _owners else ""
    if (place := _places.find(number)) is not None:
        code, instruction = place
        text += f' Call: file "{code.co_filename}", line {line_of(code, instruction)}.'
    return text


def explain(error: RuntimeError) -> RuntimeError:
    """The same error, which an op raised, with the metric and the place of the call spelled out."""
    if error.args and isinstance(error.args[0], str):
        error.args = (_MARK.sub(_origin, error.args[0]), *error.args[1:])
    return error


def _take(slot: int) -> str:
    """What is known so far, without waiting, of one slot, or of all if it is negative."""
    if not torch.cuda.is_initialized():
        return ""
    text: str = torch.ops.syncfree.take_error_record(-1, slot)
    return _MARK.sub(_origin, text)


def raise_pending(slot: int) -> None:
    """Raises RuntimeError for what kernels have found in calls of this slot. Never waits.

    Compiled code leaves this to its ops, which look for themselves.
    """
    if is_dynamo_compiling():
        return
    text = _take(slot)
    if text:
        raise RuntimeError(text)


def check_errors() -> None:
    """Waits for all CUDA devices and raises if a metric met values out of range since last time.

    A metric on CUDA does not wait to look at its values. A label out of range is left out of the
    counts, the result becomes NaN, and a record of it is left where the host can read it: at the
    next call of the same metric, at its ``compute()``, or here. This function waits, so that
    nothing is missed. On the CPU such labels raise at once and this does nothing.

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
    """Until the kernels that may leave an error are through."""
    for device in range(torch.cuda.device_count()):
        # A look at a device that was never used would open a context there.
        if torch.ops.syncfree.has_error_record(device):
            torch.cuda.synchronize(device)


def _all_kernels_end() -> bool:
    """False where a collective may be left that other processes never join, and never ends."""
    in_group = dist.is_available() and dist.is_initialized()
    return not in_group and not hasattr(sys, "last_value")


@atexit.register
def _warn_of_unread() -> None:
    if torch.cuda.is_initialized() and _all_kernels_end():
        with suppress(RuntimeError):  # of the program's kernels: records are read all the same
            wait()
    text = _take_all()
    if text:
        warnings.warn(f"Never read before the end of the program: {text}", stacklevel=1)
