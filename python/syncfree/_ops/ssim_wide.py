"""SSIM of float16 and bfloat16 images as a float32 value, for losses.

One minus a value that was rounded to half precision has no digits left if the images are alike. The
op that adds a batch to a metric's states returns a value of their dtype, so it is called with
float32 states that nobody reads.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from syncfree._ops.gradient import Differentiable
from syncfree._ops.ssim import image_quality, ssim_update
from syncfree._ops.ssim_backward import gradients_of, keep


def wide_ssim(preds: Tensor, target: Tensor, *options: Any) -> Tensor:
    """`ssim` in float32."""
    # The states are never read, so they need no zeros.
    similarity = torch.empty((), dtype=torch.float32, device=preds.device)
    total = torch.empty_like(similarity)
    value: Tensor = ssim_update(preds, target, similarity, total, *options)
    return value


def wide_ssim_and_error(preds: Tensor, target: Tensor, *options: Any) -> tuple[Tensor, Tensor]:
    """SSIM and the mean absolute error in float32."""
    error = image_quality(preds, target, *options)[2]
    return wide_ssim(preds, target, *options), error


class DifferentiableWideSsim(Differentiable):
    """The differentiable form of `wide_ssim`."""

    @staticmethod
    def forward(ctx: Any, preds: Tensor, target: Tensor, *options: Any) -> Any:
        keep(ctx, (preds, target), options)
        return wide_ssim(preds, target, *options)

    @staticmethod
    def backward(ctx: Any, value: Tensor | None) -> Any:
        return gradients_of(ctx, ctx.saved_tensors, value)


class DifferentiableWideSsimAndError(Differentiable):
    """The differentiable form of `wide_ssim_and_error`: one pass gives the gradient of both."""

    @staticmethod
    def forward(ctx: Any, preds: Tensor, target: Tensor, *options: Any) -> Any:
        keep(ctx, (preds, target), options)
        return wide_ssim_and_error(preds, target, *options)

    @staticmethod
    def backward(ctx: Any, value: Tensor | None, error: Tensor | None) -> Any:
        images = ctx.saved_tensors
        if error is not None:
            error = (error / images[0].numel()).expand(images[0].shape[:1])
        return gradients_of(ctx, images, value, absolute_error=error)
