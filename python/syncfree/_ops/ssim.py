"""The ops behind SSIM and `image_quality`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from syncfree._ops.registry import REDUCTIONS, bind


def _dtype(preds: Tensor) -> torch.dtype:
    return preds.dtype if preds.dtype.is_floating_point else torch.float32


def _values(preds: Tensor, reduction: int, dtype: torch.dtype) -> Tensor:
    shape = preds.shape[:1] if reduction == REDUCTIONS["none"] else ()
    return preds.new_empty(shape, dtype=dtype)


def _fake_ssim(
    preds: Tensor,
    target: Tensor,
    gaussian: bool,
    sigma: Sequence[float],
    kernel_size: Sequence[int],
    data_range: float | None,
    interval: Sequence[float] | None,
    k1: float,
    k2: float,
    reduction: int,
) -> Tensor:
    return _values(preds, reduction, _dtype(preds))


def _fake_ssim_with_map(
    preds: Tensor,
    target: Tensor,
    gaussian: bool,
    sigma: Sequence[float],
    kernel_size: Sequence[int],
    data_range: float | None,
    interval: Sequence[float] | None,
    k1: float,
    k2: float,
    reduction: int,
) -> tuple[Tensor, Tensor]:
    sizes = list(preds.shape)
    if gaussian and preds.ndim == 5:
        # The last axis is padded by kernel_size, whatever the Gaussian's size.
        taps = 2 * int(3.5 * sigma[-1] + 0.5) + 1
        sizes[-1] += 2 * ((kernel_size[-1] - 1) // 2) - (taps - 1)
    value = _values(preds, reduction, _dtype(preds))
    return value, preds.new_empty(sizes, dtype=_dtype(preds))


def _fake_ssim_with_contrast(
    preds: Tensor,
    target: Tensor,
    gaussian: bool,
    sigma: Sequence[float],
    kernel_size: Sequence[int],
    data_range: float | None,
    interval: Sequence[float] | None,
    k1: float,
    k2: float,
    reduction: int,
) -> tuple[Tensor, Tensor]:
    value = _values(preds, reduction, _dtype(preds))
    return value, _values(preds, REDUCTIONS["none"], _dtype(preds))


def _fake_image_quality(
    preds: Tensor,
    target: Tensor,
    gaussian: bool,
    sigma: Sequence[float],
    kernel_size: Sequence[int],
    data_range: float,
    interval: Sequence[float] | None,
    k1: float,
    k2: float,
    reduction: int,
) -> tuple[Tensor, Tensor, Tensor]:
    error_dtype = torch.float64 if preds.dtype == torch.float64 else torch.float32
    psnr = _values(preds, reduction, error_dtype)
    ssim_value = _values(preds, reduction, _dtype(preds))
    return psnr, ssim_value, _values(preds, reduction, error_dtype)


ssim = bind("ssim", _fake_ssim)
ssim_with_map = bind("ssim_with_map", _fake_ssim_with_map)
ssim_with_contrast = bind("ssim_with_contrast", _fake_ssim_with_contrast)
image_quality = bind("image_quality", _fake_image_quality)
