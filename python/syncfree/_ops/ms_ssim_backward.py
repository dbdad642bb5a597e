"""The gradient of multi-scale SSIM."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from syncfree._ops.gradient import Differentiable, first_derivative, gradient_like
from syncfree._ops.ms_ssim import multiscale_ssim_with_scales
from syncfree._ops.quick_calls import quicken_gradient
from syncfree._ops.registry import bind
from syncfree._ops.ssim import check_images


def _fake(
    preds: Tensor,
    target: Tensor,
    means: Tensor,
    preds_pyramid: Tensor,
    target_pyramid: Tensor,
    grad_value: Tensor,
    need_preds: bool,
    need_target: bool,
    *options: Any,
) -> tuple[Tensor, Tensor]:
    check_images(preds, target)
    return gradient_like(preds, need_preds), gradient_like(target, need_target)


multiscale_ssim_backward = bind("multiscale_ssim_backward", _fake)


class DifferentiableMultiscaleSsim(Differentiable):
    """The differentiable form of `multiscale_ssim`; saves the images and means of all scales."""

    @staticmethod
    def forward(ctx: Any, preds: Tensor, target: Tensor, *options: Any) -> Any:
        value, *scales = multiscale_ssim_with_scales(preds, target, *options)
        ctx.save_for_backward(preds, target, *scales)
        ctx.set_materialize_grads(False)
        ctx.options = options
        return value

    @staticmethod
    def backward(ctx: Any, value: Tensor | None) -> Any:
        if value is None:
            return (None,) * len(ctx.needs_input_grad)
        needs = ctx.needs_input_grad[:2]
        arguments = *ctx.saved_tensors, value, *needs, *ctx.options
        gradients = first_derivative(multiscale_ssim_backward, needs, *arguments)
        return *gradients, *(None for _ in ctx.options)


quicken_gradient(
    DifferentiableMultiscaleSsim, multiscale_ssim_with_scales, multiscale_ssim_backward
)
