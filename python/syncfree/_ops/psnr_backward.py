"""The gradient of the op behind `peak_signal_noise_ratio`."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from syncfree._ops.checks import check_same_shape
from syncfree._ops.gradient import Differentiable, first_derivative, gradient_like
from syncfree._ops.psnr import psnr
from syncfree._ops.quick_calls import quicken_gradient
from syncfree._ops.registry import bind


def _fake(
    preds: Tensor,
    target: Tensor,
    grad_value: Tensor,
    need_preds: bool,
    need_target: bool,
    *options: Any,
) -> tuple[Tensor, Tensor]:
    check_same_shape(preds, target)
    return gradient_like(preds, need_preds), gradient_like(target, need_target)


psnr_backward = bind("psnr_backward", _fake)


class DifferentiablePsnr(Differentiable):
    """The differentiable form of `psnr`; saves only the operands."""

    @staticmethod
    def forward(ctx: Any, preds: Tensor, target: Tensor, *options: Any) -> Any:
        ctx.save_for_backward(preds, target)
        ctx.set_materialize_grads(False)
        ctx.options = options
        return psnr(preds, target, *options)

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor | None) -> Any:
        return _gradients(ctx, grad_value)


quicken_gradient(DifferentiablePsnr, psnr, psnr_backward)


class PsnrWithGradient(Differentiable):
    """A value that is known already, with the gradient of `psnr`."""

    @staticmethod
    def forward(ctx: Any, preds: Tensor, target: Tensor, value: Tensor, *options: Any) -> Tensor:
        ctx.save_for_backward(preds, target)
        ctx.set_materialize_grads(False)
        ctx.options = options
        return value.clone()  # else autograd takes it for a view, which cannot be written in place

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor | None) -> Any:
        return _gradients(ctx, grad_value)


def _gradients(ctx: Any, grad_value: Tensor | None) -> Any:
    """The gradients of all arguments, the operands' first."""
    if grad_value is None:
        return (None,) * len(ctx.needs_input_grad)
    preds, target = ctx.saved_tensors
    needs = ctx.needs_input_grad[:2]
    arguments = preds, target, grad_value, *needs, *ctx.options
    gradients = first_derivative(psnr_backward, needs, *arguments)
    return *gradients, *[None] * (len(ctx.needs_input_grad) - 2)
