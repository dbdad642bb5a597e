"""Calls of accuracy's ops, from functions and classes alike."""

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

_is_tracing = torch._C._is_tracing  # what torch.jit.is_tracing asks, in half its time
_VALIDATE = ops.VALIDATE
_with_call = _error_records.with_call


def call(
    op: Any, tensors: tuple[Any, ...], own: tuple[Any, ...], options: int, ignore_index: int
) -> Any:
    """The result of an op's overload for the batch that ``tensors`` begin with.

    Kept quick: a small batch takes the GPU less time than its call takes the host. Errors name the
    line that called.
    """
    if not (isinstance(tensors[0], Tensor) and isinstance(tensors[1], Tensor)):
        require_tensors(tensors[0], tensors[1])
    if is_dynamo_compiling():
        return op(*in_shapes_of_ops(tensors, own, options), *own, options, ignore_index)
    # A graph of torch.export or torch.jit.trace runs at other places than where it is recorded, and
    # perhaps in a process with other numbers.
    # The flag is what torch.compiler.is_compiling asks, behind two frames.
    if options & _VALIDATE and not (compiler._is_compiling_flag or _is_tracing()):
        options = _with_call(options)
    try:
        return op.with_groups(tensors, own, options, ignore_index)
    except RuntimeError as error:
        raise _error_records.explain(error) from None
    except ValueError:
        # Only now, since to look at shapes takes 0.3 us.
        others = in_shapes_of_ops(tensors, own, options)
        if others is tensors:
            raise
    return call(op, others, own, options, ignore_index)


def stepping(op: Any, states: tuple[str, ...], options: tuple[str, str, str]) -> Callable[..., Any]:
    """`call` for the attributes of a metric and a batch, NotImplemented where that has to look.

    ``states`` and ``options`` are the names of attributes.
    """
    failed = _answering(lambda *_: NotImplemented)
    return quick_calls.stepping(op, states, options, _with_call, _VALIDATE, failed)


def checked(
    op: Any, check: Callable[..., tuple[Any, ...]]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`call` for a batch and a function's options, of which ``check`` makes those of `call`.

    Two functions: the quick one, and one for torch.compile to look into.
    """

    def usual(preds: Tensor, target: Tensor, *options: Any) -> Any:
        return call(op, (preds, target), *check(*options))

    def in_a_row(*options: Any) -> tuple[Any, ...]:
        own, *others = check(*options)
        return *own, *others

    failed = _answering(usual)
    return quick_calls.checking(op, in_a_row, _with_call, _VALIDATE, failed, usual), usual


def _answering(otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """What the quick way does where the op raises: shapes it refused may have others that fit."""

    def failed(error: Exception, *arguments: Any) -> Any:
        try:
            if isinstance(error, RuntimeError):
                raise _error_records.explain(error) from None
        finally:
            del error  # whose traceback holds this frame: a cycle would keep the batch
        return otherwise(*arguments)

    return failed
