"""The ops behind multi-scale SSIM."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from syncfree._ops.checks import check_running_mean
from syncfree._ops.registry import REDUCTIONS, bind
from syncfree._ops.ssim import _Arguments, check_images

# As in csrc/ms_ssim/ms_ssim.h.
NORMALIZE: dict[str | None, int] = {None: 0, "relu": 1, "simple": 2}
MAX_SCALES = 32


def check_count_of_scales(scales: int) -> None:
    """Checks the number of scales against the limit of the kernels."""
    if not 1 <= scales <= MAX_SCALES:
        raise ValueError(
            f"Expected argument `betas` to hold 1 to {MAX_SCALES} numbers, but got {scales}."
        )


def check_scales(images: Tensor, scales: int, kernel_size: Sequence[int]) -> None:
    """Checks height and width by TorchMetrics' rules."""
    check_count_of_scales(scales)
    given = f"For a given number of `betas` parameters {scales}"
    for size in images.shape[-2:]:
        torch._check_value(
            size >= 2**scales,
            lambda: (
                f"{given}, the image height and width dimensions must be larger than or equal to "
                f"{2**scales}. Got images of shape {list(images.shape)}. Use larger images or "
                "fewer `betas`."
            ),
        )
    divisor = max(1, (scales - 1) ** 2)
    both = [*kernel_size, *kernel_size][:2]
    for name, size, kernel in zip(("height", "width"), images.shape[-2:], both, strict=False):
        torch._check_value(
            size // divisor > kernel - 1,
            lambda name=name, kernel=kernel: (
                f"{given} and kernel size {kernel}, the image {name} must be larger than "
                f"{(kernel - 1) * divisor}: {kernel * divisor} or more. Got images of shape "
                f"{list(images.shape)}. Use larger images or fewer `betas`, or "
                "`gaussian_kernel=False` with a smaller `kernel_size`."
            ),
        )


def _fake(
    preds: Tensor,
    target: Tensor,
    gaussian: bool,
    sigma: Sequence[float],
    kernel_size: Sequence[int],
    data_range: float | None,
    interval: Sequence[float] | None,
    k1: float,
    k2: float,
    betas: Sequence[float],
    normalize: int,
    reduction: int,
) -> Tensor:
    check_images(preds, target)
    check_scales(preds, len(betas), kernel_size)
    one_scale = (gaussian, sigma, kernel_size, data_range, interval, k1, k2, reduction)
    for scale in range(len(betas)):
        sizes = [size // 2**scale for size in preds.shape[2:]]
        for dimension, size in enumerate(sizes, start=2):
            torch._check(
                size > 0,
                lambda dimension=dimension, scale=scale: (
                    "Padding size should be less than the corresponding input dimension, but got: "
                    f"padding 0 at dimension {dimension} of input {list(preds.shape)}, halved "
                    f"{scale} times. Use larger images or a smaller window."
                ),
            )
        images = preds.new_empty((*preds.shape[:2], *sizes))
        _Arguments(images, images, *one_scale).check()
    dtype = torch.float64 if preds.dtype == torch.float64 else torch.float32
    return _Arguments(preds, target, *one_scale).values(dtype)


def _fake_update(
    preds: Tensor, target: Tensor, similarity: Tensor | None, total: Tensor, *options: Any
) -> Tensor:
    """The value has the dtype of the state that it is added to, if there is one."""
    values = _fake(preds, target, *options)
    reduction = options[-1]
    if (similarity is None) != (reduction == REDUCTIONS["none"]):
        raise ValueError(
            "Expected `similarity` where `reduction` is a mean or a sum, and only there."
        )
    check_running_mean(similarity, total, preds)
    return values if similarity is None else values.to(similarity.dtype)


def _fake_with_scales(preds: Tensor, *args: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    value = _fake(preds, *args)
    scales = len(args[8])
    spatial = [[size // 2**scale for size in preds.shape[2:]] for scale in range(1, scales)]
    elements = math.prod(preds.shape[:2]) * sum(math.prod(sizes) for sizes in spatial)
    means = preds.new_empty((scales, preds.shape[0]), dtype=torch.float64)
    pyramid = preds.new_empty(elements, dtype=value.dtype)
    return value, means, pyramid, torch.empty_like(pyramid)


multiscale_ssim = bind("multiscale_ssim", _fake)
multiscale_ssim_with_scales = bind("multiscale_ssim_with_scales", _fake_with_scales)
multiscale_ssim_update = bind("multiscale_ssim_update", _fake_update, ignores_gradient=True)
