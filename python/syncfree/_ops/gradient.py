"""The base of the ops' gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

Pair = tuple[Tensor, Tensor]


class Differentiable(torch.autograd.Function):
    """The differentiable form of an op, for calls that record a gradient.

    Its ``quick`` does what ``apply`` does, but faster if `quick_calls` can replace it.
    torch.compile needs ``apply``.
    """

    quick: ClassVar[Callable[..., Any]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.quick = cls.apply


def gradient_like(operand: Tensor, wanted: bool) -> Tensor:
    """An empty gradient with its operand's layout, or without elements if it is not wanted."""
    return torch.empty_like(operand) if wanted else operand.new_empty(0, dtype=torch.float32)


def first_derivative(
    op: Callable[..., Pair], needs: tuple[bool, bool], *args: Any
) -> tuple[Tensor | None, Tensor | None]:
    """The two gradients that ``op(*args)`` gives, None for an operand that needs none.

    Under ``create_graph=True`` they are part of the graph, so that a second derivative raises. With
    ``once_differentiable`` it would be missing silently if the incoming gradient is a constant.
    """
    # While it traces, dynamo would run the backward pass that only raises.
    if torch.is_grad_enabled() and not is_dynamo_compiling():
        gradients = _FirstDerivative.apply(op, *args)  # type: ignore[no-untyped-call]
    else:
        gradients = op(*args)
    return gradients[0] if needs[0] else None, gradients[1] if needs[1] else None


class _FirstDerivative(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, op: Callable[..., Pair], *args: Any) -> Pair:
        ctx.name = op._schema.name  # type: ignore[attr-defined]
        return op(*args)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise NotImplementedError(
            f"{ctx.name} cannot be differentiated: metrics have no second derivative here. "
            "Do without `create_graph=True`, or use torchmetrics for this loss."
        )
