"""Calls the accuracy ops, for functions and classes alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, compiler
from torch.compiler import is_dynamo_compiling

from syncfree import _error_records
from syncfree._ops import accuracy as ops
from syncfree._ops import quick_calls
from syncfree.functional._arguments import require_tensors
from syncfree.functional.classification._unchecked import in_shapes_of_ops

_is_tracing = torch._C._is_tracing  # the function behind torch.jit.is_tracing, in half its time
_VALIDATE = ops.VALIDATE
_with_call = _error_records.with_call


def call(
    op: Any, tensors: tuple[Any, ...], own: tuple[Any, ...], options: int, ignore_index: int
) -> Any:
    """Calls an op's overload; ``tensors`` begin with the batch.

    Kept fast: a small batch takes the GPU less time than its call takes the host. Errors name the
    calling line.
    """
    if not (isinstance(tensors[0], Tensor) and isinstance(tensors[1], Tensor)):
        require_tensors(tensors[0], tensors[1])
    if is_dynamo_compiling():
        return op(*in_shapes_of_ops(tensors, own, options), *own, options, ignore_index)
    # No number for a graph of torch.export or torch.jit.trace: it runs elsewhere than where it is
    # recorded, and perhaps in a process with other numbers.
    # torch.compiler.is_compiling returns this flag, but takes two frames.
    if options & _VALIDATE and not (compiler._is_compiling_flag or _is_tracing()):
        options = _with_call(options)
    try:
        return op.with_groups(tensors, own, options, ignore_index)
    except RuntimeError as error:
        raise _error_records.explain(error) from None
    except ValueError:
        # Only after an error, since looking at shapes takes 0.3 us.
        others = in_shapes_of_ops(tensors, own, options)
        if others is tensors:
            raise
    return call(op, others, own, options, ignore_index)


def stepping(op: Any, states: tuple[str, ...], options: tuple[str, str, str]) -> Callable[..., Any]:
    """The quick form of `call` for the attributes of a metric and a batch: `quick_calls.stepping`.

    ``states`` and ``options`` are names of attributes. It returns NotImplemented if the caller has
    to use `call`.
    """
    failed = _answering(lambda *_: NotImplemented)
    return quick_calls.stepping(op, states, options, _with_call, _VALIDATE, failed)


def checked(
    op: Any, check: Callable[..., tuple[Any, ...]]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`call` for a batch and the options of a function, which ``check`` turns into those of `call`.

    Two functions: one that makes quick calls, and one that torch.compile can trace.
    """

    def usual(preds: Tensor, target: Tensor, *options: Any) -> Any:
        return call(op, (preds, target), *check(*options))

    def in_a_row(*options: Any) -> tuple[Any, ...]:
        own, *others = check(*options)
        return *own, *others

    failed = _answering(usual)
    return quick_calls.checking(op, in_a_row, _with_call, _VALIDATE, failed, usual), usual


def _answering(otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Handles an op's error in a quick call; ``otherwise`` may reshape a batch that was refused."""

    def failed(error: Exception, *arguments: Any) -> Any:
        try:
            if isinstance(error, RuntimeError):
                raise _error_records.explain(error) from None
        finally:
            del error  # its traceback holds this frame: the cycle would keep the batch alive
        return otherwise(*arguments)

    return failed
