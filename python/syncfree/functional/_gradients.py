"""Calls ops so that a gradient is recorded if and only if an input requires one.

Callers have checked that the inputs are tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling

from syncfree._ops.gradient import Differentiable

# The function that torch's own `Function.apply` asks at each call.
_is_transformed: Callable[[], bool] = getattr(
    torch._C, "_are_functorch_transforms_active", lambda: False
)


def with_gradient(
    op: Callable[..., Any],
    differentiable: type[Differentiable],
    preds: Tensor,
    target: Tensor,
    *args: Any,
) -> Any:
    """``op(preds, target, *args)``, in its ``differentiable`` form if a gradient is recorded."""
    if forward_ad._current_level >= 0:
        refuse_forward_mode(op, preds, target)
    if (preds.requires_grad or target.requires_grad) and torch.is_grad_enabled():
        _refuse_transforms(op)
        if is_dynamo_compiling():
            return differentiable.apply(preds, target, *args)  # type: ignore[no-untyped-call]
        return differentiable.quick(preds, target, *args)
    # `_op` saves the frame and two tuples of the overload, the form that torch.compile knows.
    if not is_dynamo_compiling():
        op = getattr(op, "_op", op)
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
    """``op(preds, target, *args)``; if a gradient would be recorded, the backward pass raises."""
    if forward_ad._current_level >= 0:
        refuse_forward_mode(op, preds, target)
    wanted = preds.requires_grad or target.requires_grad
    # While it traces, dynamo would run the backward pass that only raises.
    if wanted and torch.is_grad_enabled() and not is_dynamo_compiling():
        _refuse_transforms(op)
        return _WithoutGradient.apply(op, preds, target, *args)  # type: ignore[no-untyped-call]
    return op(preds, target, *args)


_SUPPORTED = (
    "Supported are `backward()` and `torch.autograd.grad`; values alone, of detached tensors or "
    "under `torch.no_grad()`, also inside of `torch.func.vmap`."
)


def is_transformed() -> bool:
    """Whether torch.func maps or differentiates the running code; dynamo traces neither."""
    return not is_dynamo_compiling() and _is_transformed()


def _name(op: Callable[..., Any]) -> str:
    schema = getattr(op, "_schema", None)  # a function that calls several ops has none
    return str(op.__name__ if schema is None else schema.name)


def _refuse_transforms(op: Callable[..., Any]) -> None:
    if is_transformed():
        raise NotImplementedError(
            f"{_name(op)} has no gradient under the transforms of torch.func, as grad, vjp or "
            f"jacrev. {_SUPPORTED}"
        )


def refuse_forward_mode(op: Callable[..., Any], *images: Tensor) -> None:
    """Raises for dual tensors: without a rule of ours torch silently takes a derivative of 0."""
    if any(forward_ad.unpack_dual(each).tangent is not None for each in images):
        raise NotImplementedError(
            f"{_name(op)} has no derivative in forward mode, as torch.func.jvp and jacfwd ask "
            f"for. {_SUPPORTED}"
        )
