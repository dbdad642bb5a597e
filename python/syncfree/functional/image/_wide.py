"""SSIM for losses: its value is float32 also for half precision, and float64 for float64."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from syncfree._ops.ssim_wide import (
    DifferentiableWideSsim,
    DifferentiableWideSsimAndError,
    wide_ssim,
    wide_ssim_and_error,
)
from syncfree.functional._gradients import is_transformed, with_gradient
from syncfree.functional.image._images import as_images
from syncfree.functional.image._ssim_arguments import ssim_arguments
from syncfree.functional.image.quality import image_quality
from syncfree.functional.image.ssim import structural_similarity_index_measure

_HALVES = torch.float16, torch.bfloat16


def widened(images: Tensor) -> Tensor:
    """Half precision as float32; others unchanged, so that bytes beside floats stay refused."""
    return images.float() if images.dtype in _HALVES else images


def wide_similarity(
    preds: Tensor, target: Tensor, data_range: float | tuple[float, float], **options: Any
) -> Tensor:
    """`structural_similarity_index_measure` before its value is rounded to the images' dtype."""
    if not _has_own_form(preds):
        value: Tensor = structural_similarity_index_measure(
            widened(preds), target, data_range=data_range, **options
        )
        return value
    preds, target = as_images(preds, target)
    arguments = ssim_arguments(preds, target, data_range, **options)
    value = with_gradient(wide_ssim, DifferentiableWideSsim, preds, target, *arguments)
    return value


def wide_similarity_and_error(
    preds: Tensor, target: Tensor, data_range: float | tuple[float, float], **options: Any
) -> tuple[Tensor, Tensor]:
    """SSIM and the mean absolute error of `image_quality`, SSIM before it is rounded."""
    if not _has_own_form(preds):
        quality = image_quality(widened(preds), target, data_range, **options)
        return quality.ssim, quality.mae
    preds, target = as_images(preds, target)
    *arguments, _ = ssim_arguments(preds, target, data_range, **options)  # `valid` is for presets
    pair: tuple[Tensor, Tensor] = with_gradient(
        wide_ssim_and_error, DifferentiableWideSsimAndError, preds, target, *arguments
    )
    return pair


def _has_own_form(preds: Tensor) -> bool:
    """Wider images have a wide value anyway, and torch.vmap takes no op that writes to states."""
    return preds.dtype in _HALVES and not is_transformed()
