"""The gradient of the ops behind SSIM and `image_quality`: one op for all their results."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from syncfree._ops.gradient import first_derivative, gradient_like
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


def gradients_of(
    ctx: Any,
    value: Tensor | None = None,
    *,
    contrast: Tensor | None = None,
    full: Tensor | None = None,
    squared_error: Tensor | None = None,
    absolute_error: Tensor | None = None,
) -> Any:
    """Of all arguments, from what arrived for the results."""
    preds, target = ctx.saved_tensors[:2]
    needs = ctx.needs_input_grad[:2]
    arrived = value, contrast, full, squared_error, absolute_error
    arguments = preds, target, *arrived, *needs, *ctx.options
    gradients = first_derivative(ssim_backward, needs, *arguments)
    return *gradients, *(None for _ in ctx.options)


def keep(ctx: Any, tensors: tuple[Tensor, ...], options: tuple[Any, ...]) -> None:
    ctx.save_for_backward(*tensors)
    ctx.options = options
    ctx.set_materialize_grads(False)


class DifferentiableSsim(torch.autograd.Function):
    """`ssim`, where a gradient is recorded. Only the images are kept, here and below."""

    @staticmethod
    def forward(ctx: Any, preds: Tensor, target: Tensor, *options: Any) -> Any:
        keep(ctx, (preds, target), options)
        return ssim(preds, target, *options)

    @staticmethod
    def backward(ctx: Any, value: Tensor | None) -> Any:
        return gradients_of(ctx, value)


class DifferentiableSsimWithMap(torch.autograd.Function):
    """`ssim_with_map`."""

    @staticmethod
    def forward(ctx: Any, preds: Tensor, target: Tensor, *options: Any) -> Any:
        keep(ctx, (preds, target), options)
        return ssim_with_map(preds, target, *options)

    @staticmethod
    def backward(ctx: Any, value: Tensor | None, full: Tensor | None) -> Any:
        return gradients_of(ctx, value, full=full)


class DifferentiableSsimWithContrast(torch.autograd.Function):
    """`ssim_with_contrast`."""

    @staticmethod
    def forward(ctx: Any, preds: Tensor, target: Tensor, *options: Any) -> Any:
        keep(ctx, (preds, target), options)
        return ssim_with_contrast(preds, target, *options)

    @staticmethod
    def backward(ctx: Any, value: Tensor | None, contrast: Tensor | None) -> Any:
        return gradients_of(ctx, value, contrast=contrast)


def _without_states(gradients: Any) -> Any:
    """For ops that take two states behind the images."""
    preds, target, *options = gradients
    return preds, target, None, None, *options


class DifferentiableSsimUpdate(torch.autograd.Function):
    """`ssim_update`: the batch's value has a gradient, the states that it is added to have none."""

    @staticmethod
    def forward(
        ctx: Any, preds: Tensor, target: Tensor, similarity: Tensor, total: Tensor, *options: Any
    ) -> Any:
        keep(ctx, (preds, target), options)
        return ssim_update(preds, target, similarity, total, *options)

    @staticmethod
    def backward(ctx: Any, value: Tensor | None) -> Any:
        return _without_states(gradients_of(ctx, value))


class DifferentiableSsimUpdateWithMap(torch.autograd.Function):
    """`ssim_update_with_map`, likewise."""

    @staticmethod
    def forward(
        ctx: Any, preds: Tensor, target: Tensor, similarity: Tensor, total: Tensor, *options: Any
    ) -> Any:
        keep(ctx, (preds, target), options)
        return ssim_update_with_map(preds, target, similarity, total, *options)

    @staticmethod
    def backward(ctx: Any, value: Tensor | None, full: Tensor | None) -> Any:
        return _without_states(gradients_of(ctx, value, full=full))


class DifferentiableSsimUpdateWithContrast(torch.autograd.Function):
    """`ssim_update_with_contrast`, likewise."""

    @staticmethod
    def forward(
        ctx: Any, preds: Tensor, target: Tensor, similarity: Tensor, total: Tensor, *options: Any
    ) -> Any:
        keep(ctx, (preds, target), options)
        return ssim_update_with_contrast(preds, target, similarity, total, *options)

    @staticmethod
    def backward(ctx: Any, value: Tensor | None, contrast: Tensor | None) -> Any:
        return _without_states(gradients_of(ctx, value, contrast=contrast))


class DifferentiableImageQuality(torch.autograd.Function):
    """`image_quality`; its PSNR, which holds the squared error, is kept too."""

    @staticmethod
    def forward(ctx: Any, preds: Tensor, target: Tensor, *options: Any) -> Any:
        results = image_quality(preds, target, *options)
        keep(ctx, (preds, target, results[0]), options)
        return results

    @staticmethod
    def backward(
        ctx: Any, psnr: Tensor | None, value: Tensor | None, absolute_error: Tensor | None
    ) -> Any:
        preds, _, psnr_value = ctx.saved_tensors
        _, _, _, data_range, _, _, _, reduction = ctx.options
        images = preds.shape[:1]
        elements = preds.numel()
        if reduction == REDUCTIONS["none"]:
            elements //= max(preds.shape[0], 1)
        squared_error = None
        if psnr is not None:
            squared_error = _psnr_by_squared_error(psnr_value, data_range, elements) * psnr
            squared_error = squared_error.expand(images)
        if absolute_error is not None:
            absolute_error = (absolute_error / elements).expand(images)
        return gradients_of(ctx, value, squared_error=squared_error, absolute_error=absolute_error)


def _psnr_by_squared_error(psnr: Tensor, data_range: float, elements: int) -> Tensor:
    """The derivative of PSNR by the sum of squares; none where that is 0, as for PSNR alone."""
    neper = 10 / math.log(10)
    mean = data_range**2 * torch.exp(psnr.double() / -neper)
    return torch.where(mean > 0, -neper / (mean * elements), torch.zeros_like(mean))
