"""PSNR, SSIM and mean absolute error from one pass over the images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from torch import Tensor
from torch.compiler import is_dynamo_compiling

from syncfree._ops.quick_calls import checking_images
from syncfree._ops.ssim import image_quality as _op
from syncfree._ops.ssim_backward import DifferentiableImageQuality
from syncfree.functional._gradients import with_gradient
from syncfree.functional.image._images import as_images
from syncfree.functional.image._range import parse_data_range
from syncfree.functional.image._ssim_arguments import ssim_arguments, ssim_arguments_of_options


class ImageQuality(NamedTuple):
    """What `image_quality` returns: scalars or tensors of shape (B,), on the images' device.

    Attributes:
        psnr: Decibels.
        ssim: From -1 to 1.
        mae: Mean absolute error, in units of the images.
    """

    psnr: Tensor
    ssim: Tensor
    mae: Tensor


def image_quality(
    preds: Tensor,
    target: Tensor,
    data_range: float | tuple[float, float] | None = None,
    *,
    reduction: Literal["elementwise_mean", "none"] | None = "elementwise_mean",
    gaussian_kernel: bool = True,
    sigma: float | Sequence[float] = 1.5,
    kernel_size: int | Sequence[int] = 11,
    k1: float = 0.01,
    k2: float = 0.03,
) -> ImageQuality:
    """PSNR, SSIM and mean absolute error of two batches of images, which are read once.

    The SSIM kernel sums the squared and absolute differences of the pixels it loads anyway; a
    second launch of one small block finishes them. The host never waits. The gradients of all three
    results come from one pass too.

    Args:
        preds: Estimated images, (B, C, H, W) or (B, C, D, H, W), float16, bfloat16, float32,
            float64 or uint8. Other integers, on both sides, count as float32.
        target: True images, same shape and device; integers if ``preds`` are, else of any floating
            dtype.
        data_range: Range of the values, a positive number, or a tuple ``(low, high)`` to which both
            inputs are clamped, for all three results. Has to be given.
        reduction: ``"elementwise_mean"``: SSIM is the mean over images, PSNR comes from the error
            pooled over the batch, as `peak_signal_noise_ratio` gives it by default. ``"none"``
            (``None``): one value per image for each.
        gaussian_kernel: See `structural_similarity_index_measure`, as for all that follow.
        sigma: Standard deviation of the Gaussian window.
        kernel_size: Size of the uniform window.
        k1: Constant of the luminance term.
        k2: Constant of the contrast term.

    Returns:
        A named tuple of scalars, or of tensors of shape (B,). ``psnr`` (decibels) and ``mae`` (in
        units of the images) are float32, or float64 for float64 ``preds``; ``ssim`` has the dtype
        of ``preds``, float32 for integers. Identical images have a PSNR of ``inf``.

    Raises:
        RuntimeError: As for `structural_similarity_index_measure`.
        ValueError: Likewise, and if ``reduction`` is neither of the two.
        TypeError: Likewise, and if there is no ``data_range``.

    Warns:
        UserWarning: Once for each calling line, if the images are uint8 and ``data_range`` is 2
            or less.

    Reference:
        As for `structural_similarity_index_measure` and `peak_signal_noise_ratio`.

    Example:
        >>> import torch
        >>> from syncfree.functional import image_quality
        >>> target = torch.zeros(2, 3, 16, 16)
        >>> quality = image_quality(target + 0.1, target, data_range=1.0)
        >>> print(f"{quality.psnr:.2f} dB, mean absolute error {quality.mae:.2f}")
        20.00 dB, mean absolute error 0.10
    """
    if reduction not in ("elementwise_mean", "none", None):
        raise ValueError(
            "Expected argument `reduction` to be one of ('elementwise_mean', 'none', None), "
            f"but got {reduction!r}."
        )
    run = _quality_of_any if is_dynamo_compiling() else _quality
    window = gaussian_kernel, sigma, kernel_size
    return ImageQuality(*run(preds, target, data_range, *window, reduction, k1, k2))


def _quality_of_any(preds: Tensor, target: Tensor, data_range: Any, *options: Any) -> Any:
    preds, target = as_images(preds, target)
    if data_range is None:  # only for SSIM alone does None stand for the range of the data
        parse_data_range(data_range)
    *arguments, _ = ssim_arguments(preds, target, data_range, *options)  # `valid` is for presets
    return with_gradient(_op, DifferentiableImageQuality, preds, target, *arguments)


def _arguments_of_options(of_bytes: bool, data_range: Any, *options: Any) -> tuple[Any, ...] | None:
    if data_range is None:
        return None
    arguments = ssim_arguments_of_options(of_bytes, data_range, *options, "torchmetrics")
    return None if arguments is None else arguments[:-1]


_quality = checking_images(_op, _arguments_of_options, _quality_of_any)
