"""The gradient of the ops behind SSIM and `image_quality`: one op for all their results."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from syncfree._ops.gradient import Differentiable, first_derivative, gradient_like
from syncfree._ops.quick_calls import quicken_gradient
from syncfree._ops.registry import REDUCTIONS, bind
from syncfree._ops.ssim import (
    check_images,
    image_quality,
    ssim,
    ssim_update,
    ssim_update_with_contrast,
    ssim_update_with_map,
    ssim_with_contrast,
    ssim_with_map,
)


def _fake(
    preds: Tensor,
    target: Tensor,
    grad_value: Tensor | None,
    grad_contrast: Tensor | None,
    grad_map: Tensor | None,
    grad_squared_error: Tensor | None,
    grad_absolute_error: Tensor | None,
    need_preds: bool,
    need_target: bool,
    *options: Any,
) -> tuple[Tensor, Tensor]:
    check_images(preds, target)
    return gradient_like(preds, need_preds), gradient_like(target, need_target)


ssim_backward = bind("ssim_backward", _fake)

# The results whose gradients `ssim_backward` takes, in this order.
_RESULTS = "value", "contrast", "full", "squared_error", "absolute_error"


def gradients_of(
    ctx: Any,
    images: tuple[Tensor, Tensor],
    value: Tensor | None = None,
    *,
    contrast: Tensor | None = None,
    full: Tensor | None = None,
    squared_error: Tensor | None = None,
    absolute_error: Tensor | None = None,
) -> Any:
    """The gradients of all arguments, from the incoming gradients of the results.

    ``images`` are from ``ctx.saved_tensors``, which activation checkpointing allows to read once.
    """
    needs = ctx.needs_input_grad[:2]
    arrived = value, contrast, full, squared_error, absolute_error
    if all(each is None for each in arrived):
        return (None,) * len(ctx.needs_input_grad)
    arguments = *images, *arrived, *needs, *ctx.options
    gradients = first_derivative(ssim_backward, needs, *arguments)
    return *gradients, *[None] * (len(ctx.needs_input_grad) - 2)


def keep(ctx: Any, tensors: tuple[Tensor, ...], options: tuple[Any, ...]) -> None:
    """Saves tensors, the images first, and options for the backward pass."""
    ctx.save_for_backward(*tensors)
    ctx.options = options
    ctx.set_materialize_grads(False)


def _differentiable(
    name: str, op: Callable[..., Any], *extra: str, states: int = 0
) -> type[Differentiable]:
    """The differentiable form of an op, for its value and its ``extra`` result, if any.

    Only the images are saved. The ``states`` that some ops take after them have no gradient.
    """
    results = "value", *extra

    def forward(ctx: Any, preds: Tensor, target: Tensor, *rest: Any) -> Any:
        keep(ctx, (preds, target), rest[states:])
        return op(preds, target, *rest)

    def backward(ctx: Any, *arrived: Tensor | None) -> Any:
        return gradients_of(ctx, ctx.saved_tensors, **dict(zip(results, arrived, strict=True)))

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function: type[Differentiable] = type(name, (Differentiable,), methods)
    slots = tuple(_RESULTS.index(result) for result in results)
    quicken_gradient(function, op, ssim_backward, states, slots)
    return function


DifferentiableSsim = _differentiable("DifferentiableSsim", ssim)
DifferentiableSsimWithMap = _differentiable("DifferentiableSsimWithMap", ssim_with_map, "full")
DifferentiableSsimWithContrast = _differentiable(
    "DifferentiableSsimWithContrast", ssim_with_contrast, "contrast"
)
DifferentiableSsimUpdate = _differentiable("DifferentiableSsimUpdate", ssim_update, states=2)
DifferentiableSsimUpdateWithMap = _differentiable(
    "DifferentiableSsimUpdateWithMap", ssim_update_with_map, "full", states=2
)
DifferentiableSsimUpdateWithContrast = _differentiable(
    "DifferentiableSsimUpdateWithContrast", ssim_update_with_contrast, "contrast", states=2
)


class DifferentiableImageQuality(Differentiable):
    """The differentiable form of `image_quality`; saves its PSNR too, for the squared error."""

    @staticmethod
    def forward(ctx: Any, preds: Tensor, target: Tensor, *options: Any) -> Any:
        results = image_quality(preds, target, *options)
        keep(ctx, (preds, target, results[0]), options)
        return results

    @staticmethod
    def backward(
        ctx: Any, psnr: Tensor | None, value: Tensor | None, absolute_error: Tensor | None
    ) -> Any:
        preds, target, psnr_value = ctx.saved_tensors
        _, _, _, data_range, _, _, _, reduction = ctx.options
        each = preds.shape[:1]
        elements = preds.numel()
        if reduction == REDUCTIONS["none"]:
            elements //= max(preds.shape[0], 1)
        squared_error = None
        if psnr is not None:
            squared_error = _psnr_by_squared_error(psnr_value, data_range, elements) * psnr
            squared_error = squared_error.expand(each)
        if absolute_error is not None:
            absolute_error = (absolute_error / elements).expand(each)
        return gradients_of(
            ctx,
            (preds, target),
            value,
            squared_error=squared_error,
            absolute_error=absolute_error,
        )


def _psnr_by_squared_error(psnr: Tensor, data_range: float, elements: int) -> Tensor:
    """The derivative of PSNR by the sum of squares; 0 where that sum is 0, as for PSNR alone."""
    neper = 10 / math.log(10)
    mean = data_range**2 * torch.exp(psnr.double() / -neper)
    return torch.where(mean == 0, torch.zeros_like(mean), -neper / (mean * elements))
