"""A loss of SSIM whose gradients come with its value, in one pass over the images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from syncfree._ops.gradient import gradient_like
from syncfree._ops.registry import REDUCTIONS, bind
from syncfree._ops.ssim import _Arguments
from syncfree._ops.ssim_backward import gradients_of


def _fake(
    preds: Tensor,
    target: Tensor,
    value_weight: float,
    error_weight: float,
    need_preds: bool,
    need_target: bool,
    gaussian: bool,
    sigma: Any,
    kernel_size: Any,
    data_range: float,
    k1: float,
    k2: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    mean = REDUCTIONS["elementwise_mean"]
    window = gaussian, sigma, kernel_size
    arguments = _Arguments(preds, target, *window, data_range, None, k1, k2, mean)
    arguments.check()
    wide = torch.float64 if preds.dtype == torch.float64 else torch.float32
    error = preds.new_empty(() if error_weight != 0 else (0,), dtype=wide)
    gradients = gradient_like(preds, need_preds), gradient_like(target, need_target)
    return arguments.values(wide), error, *gradients


def _fake_scale(first: Tensor, second: Tensor, factor: Tensor) -> None:
    pass


ssim_with_gradients = bind("ssim_with_gradients", _fake)
_scale = bind("scale_", _fake_scale)


class SsimLoss(torch.autograd.Function):
    """``weight * (1 - SSIM) + (1 - weight) * mean absolute error`` of float32 images.

    Its gradients are found in the forward pass, as if 1 arrived for the loss, and kept for the
    first backward pass, which multiplies them in place by what does. Any other pass finds them
    anew: it has nothing to lose that somebody holds.
    """

    @staticmethod
    def forward(
        ctx: Any, preds: Tensor, target: Tensor, weight: float, options: tuple[Any, ...]
    ) -> Tensor:
        needs = ctx.needs_input_grad[:2]
        gaussian, sigma, kernel_size, data_range, _, k1, k2, _, _ = options
        window = gaussian, sigma, kernel_size
        similarity, error, *gradients = ssim_with_gradients(
            preds, target, -weight, 1 - weight, *needs, *window, data_range, k1, k2
        )
        ctx.save_for_backward(preds, target)
        ctx.weight = weight
        ctx.options = options
        ctx.gradients = gradients
        loss: Tensor = weight * (1 - similarity)
        return loss if weight == 1 else (1 - weight) * error + loss

    @staticmethod
    def backward(ctx: Any, arrived: Tensor) -> Any:
        gradients, ctx.gradients = ctx.gradients, None
        preds, _ = ctx.saved_tensors  # raises if the images have changed
        if gradients is not None and not torch.is_grad_enabled():
            _scale(*gradients, arrived)
            needs = ctx.needs_input_grad[:2]
            kept = (g if need else None for g, need in zip(gradients, needs, strict=True))
            return *kept, None, None
        error = (1 - ctx.weight) / preds.numel() * arrived
        absolute_error = error.expand(preds.shape[:1]) if ctx.weight != 1 else None
        return gradients_of(ctx, -ctx.weight * arrived, absolute_error=absolute_error)
