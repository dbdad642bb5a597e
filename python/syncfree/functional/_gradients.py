"""Calls ops whose gradient does not exist yet, so that nobody takes a zero for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling


class _WithoutGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, op: Callable[..., Any], *args: Any) -> Any:
        ctx.name = op._schema.name  # type: ignore[attr-defined]
        return op(*args)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise NotImplementedError(
            f"The gradient of {ctx.name} is not implemented yet. Call the metric under "
            "`torch.no_grad()` or on detached tensors, or use torchmetrics for this loss."
        )


def without_gradient(op: Callable[..., Any], preds: Tensor, *args: Any) -> Any:
    """``op(preds, *args)``; where a gradient would be recorded, backward raises."""
    try:
        wanted = preds.requires_grad or args[0].requires_grad
    except AttributeError:
        raise TypeError(
            f"Expected two tensors, but got {type(preds).__name__} and {type(args[0]).__name__}. "
            "Make tensors of them with `torch.as_tensor(...)`."
        ) from None
    # Dynamo would run the backward that only raises while it traces.
    if wanted and torch.is_grad_enabled() and not is_dynamo_compiling():
        return _WithoutGradient.apply(op, preds, *args)  # type: ignore[no-untyped-call]
    return op(preds, *args)
