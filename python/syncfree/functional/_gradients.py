"""Calls ops so that a gradient is recorded where one is wanted, and only there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from syncfree.functional._arguments import require_tensors


def with_gradient(
    op: Callable[..., Any],
    differentiable: type[torch.autograd.Function],
    preds: Tensor,
    target: Tensor,
    *args: Any,
) -> Any:
    """``op(preds, target, *args)``, through its ``differentiable`` form if an input wants that."""
    require_tensors(preds, target)
    if (preds.requires_grad or target.requires_grad) and torch.is_grad_enabled():
        return differentiable.apply(preds, target, *args)
    return op(preds, target, *args)


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


def without_gradient(op: Callable[..., Any], preds: Tensor, target: Tensor, *args: Any) -> Any:
    """``op(preds, target, *args)``; where a gradient would be recorded, backward raises."""
    require_tensors(preds, target)
    wanted = preds.requires_grad or target.requires_grad
    # Dynamo would run the backward that only raises while it traces.
    if wanted and torch.is_grad_enabled() and not is_dynamo_compiling():
        return _WithoutGradient.apply(op, preds, target, *args)  # type: ignore[no-untyped-call]
    return op(preds, target, *args)
