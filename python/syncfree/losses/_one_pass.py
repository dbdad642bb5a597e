"""Losses of large images with their gradients in one pass, where a kernel has a form for that."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling

from syncfree._ops.ssim_with_gradients import SsimLoss
from syncfree.functional._gradients import is_transformed
from syncfree.functional.image._images import require_images
from syncfree.functional.image.ssim import ssim_arguments

# csrc/ssim/ssim_backward_walk.cu: of smaller images each pass has a kernel of its own.
_LEAST_SIZE = 720, 1280


def loss_in_one_pass(
    preds: Tensor,
    target: Tensor,
    weight: float,
    data_range: float | tuple[float, float],
    **options: Any,
) -> Tensor | None:
    """``weight * (1 - SSIM) + (1 - weight) * mean absolute error`` if it goes this way.

    Tensors whose gradient somebody wants, float32 on CUDA, with the default window. torch.compile
    cannot keep what `SsimLoss` keeps.
    """
    wanted = torch.is_grad_enabled() and (preds.requires_grad or target.requires_grad)
    if not wanted or not (preds.is_cuda and _is_large(preds) and _is_large(target)):
        return None
    if is_dynamo_compiling() or is_transformed() or forward_ad._current_level >= 0:
        return None
    require_images(preds, target)
    arguments = ssim_arguments(preds, target, data_range, **options)
    gaussian, sigma, _, value_range, interval, *_, valid = arguments
    if not gaussian or any(s != 1.5 for s in sigma) or value_range is None or interval or valid:
        return None
    loss: Tensor = SsimLoss.apply(preds, target, weight, arguments)  # type: ignore[no-untyped-call]
    return loss


def _is_large(images: Tensor) -> bool:
    return (
        images.dtype is torch.float32
        and images.ndim == 4
        and images.shape[2] >= _LEAST_SIZE[0]
        and images.shape[3] >= _LEAST_SIZE[1]
        and images.numel() > 0
    )
