"""Multi-scale SSIM as Wang's program and pytorch-msssim define it, made of SSIM without a border.

Unlike TorchMetrics' definition and its kernels, both multiply the scales of each channel before
they average the channels, and halve odd sizes in their own way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from syncfree._ops.ms_ssim import check_count_of_scales
from syncfree._ops.registry import REDUCTIONS
from syncfree._ops.ssim import check_images, ssim, ssim_with_contrast
from syncfree._ops.ssim_backward import DifferentiableSsim, DifferentiableSsimWithContrast
from syncfree.functional._arguments import number, require_tensors
from syncfree.functional._gradients import with_gradient
from syncfree.functional.image._preset import DEFAULT_WINDOW, range_of
from syncfree.functional.image._range import parse_data_range

_TAPS = 11
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8)


def ms_ssim_by_preset(
    preset: str,
    preds: Tensor,
    target: Tensor,
    data_range: Any,
    k1: Any,
    k2: Any,
    betas: Sequence[float],
) -> Tensor:
    """One value per image, with a gradient for both batches of images."""
    require_tensors(preds, target)
    _check_images(preds, target)
    _check_sizes(preset, preds, len(betas))
    value_range, interval = parse_data_range(
        range_of(preset, preds, target, data_range), preds, target
    )
    wide = torch.float64 if preds.dtype == torch.float64 else torch.float32
    # A channel is an image of its own until the end.
    pair = [images.to(wide).flatten(0, 1).unsqueeze(1) for images in (preds, target)]
    if interval is not None:
        pair = [images.clamp(*interval) for images in pair]
    halve = _HALVE[preset]
    options = value_range, None, number("k1", k1), number("k2", k2), REDUCTIONS["none"], True
    *finer, coarsest = betas
    # Factor by factor: the backward pass of `prod` reads a count back to the host.
    product: Any = 1.0
    for beta in finer:
        _, contrast = _similarity(ssim_with_contrast, DifferentiableSsimWithContrast, pair, options)
        product = product * _power(contrast, beta)
        pair = [halve(images) for images in pair]
    product = product * _power(_similarity(ssim, DifferentiableSsim, pair, options), coarsest)
    values: Tensor = product.unflatten(0, preds.shape[:2]).mean(1).to(wide)
    return values


def _similarity(
    op: Callable[..., Any], differentiable: Any, pair: list[Tensor], options: Any
) -> Any:
    gaussian, sigma, kernel_size = DEFAULT_WINDOW
    window = gaussian, (sigma,), (kernel_size,)
    return with_gradient(op, differentiable, pair[0], pair[1], *window, *options)


def _power(mean: Tensor, beta: float) -> Tensor:
    """``mean ** beta``; if the mean is not positive, 0 without a gradient, not an infinite one."""
    mean = mean.double()
    empty = mean <= 0
    # Not `where`, which would copy its number to the GPU.
    power: Tensor = mean.masked_fill(empty, 1.0) ** beta
    return power.masked_fill(empty, 0.0)


def _halve_like_wang(images: Tensor) -> Tensor:
    """`imfilter(x, ones(2) / 4, 'symmetric')` at every second pixel: a last odd row is kept."""
    pool = F.avg_pool2d if images.ndim == 4 else F.avg_pool3d
    return pool(images, 2, ceil_mode=True)


def _halve_like_pytorch_msssim(images: Tensor) -> Tensor:
    """Odd sizes are padded with a zero on either side, which counts in the average."""
    pool = F.avg_pool2d if images.ndim == 4 else F.avg_pool3d
    return pool(images, 2, padding=[size % 2 for size in images.shape[2:]])


_HALVE = {"wang": _halve_like_wang, "pytorch-msssim": _halve_like_pytorch_msssim}


def _check_images(preds: Tensor, target: Tensor) -> None:
    # torch.compile cannot trace `check_images`, so it is called only if it has something to raise.
    dtypes_fit = preds.dtype in _DTYPES and target.dtype in _DTYPES
    one_unit = (preds.dtype == torch.uint8) == (target.dtype == torch.uint8)
    shapes_fit = preds.shape == target.shape and preds.ndim in (4, 5)
    if not (shapes_fit and dtypes_fit and one_unit):
        check_images(preds, target)


def _check_sizes(preset: str, images: Tensor, scales: int) -> None:
    """Checks each axis against the least size that the preset's library asks for."""
    check_count_of_scales(scales)
    halvings = 2 ** (scales - 1)
    least = _TAPS * halvings if preset == "wang" else (_TAPS - 1) * halvings + 1
    if any(size < least for size in images.shape[2:]):
        raise ValueError(
            f"Expected images of at least {least} pixels an axis for {scales} `betas` with "
            f"`preset={preset!r}`, but got shape {list(images.shape)}. Use larger images or fewer "
            "`betas`."
        )
