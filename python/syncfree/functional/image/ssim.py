"""Structural similarity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from torch import Tensor

from syncfree._ops import ssim as _ops
from syncfree._ops.registry import reduction_code
from syncfree.functional._gradients import without_gradient
from syncfree.functional.image._range import parse_data_range

Reduction = Literal["elementwise_mean", "sum", "none"] | None


def structural_similarity_index_measure(
    preds: Tensor,
    target: Tensor,
    gaussian_kernel: bool = True,
    sigma: float | Sequence[float] = 1.5,
    kernel_size: int | Sequence[int] = 11,
    reduction: Reduction = "elementwise_mean",
    data_range: float | tuple[float, float] | None = None,
    k1: float = 0.01,
    k2: float = 0.03,
    return_full_image: bool = False,
    return_contrast_sensitivity: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    r"""Structural similarity of two batches of images or volumes, 1 for identical ones.

    .. math::
        \text{SSIM}(x, y) = \frac{(2 \mu_x \mu_y + c_1)(2 \sigma_{xy} + c_2)}
        {(\mu_x^2 + \mu_y^2 + c_1)(\sigma_x^2 + \sigma_y^2 + c_2)}, \quad c_i = (k_i R)^2

    with means and variances under a window that slides over the image, mirrored at its borders
    without repeating the edge. The value of an image is the mean of its whole map.

    One kernel on the images' device and the current stream (two where the range comes from the
    data); nothing of the images' size is stored and the host never waits. Moments are those of the
    sum and the difference of the images, so that bright or flat images lose no digits, computed in
    float32 (float64 for float64 ``preds``). An image's value has the same bits in any batch and any
    memory layout.

    Args:
        preds: Estimated images, (B, C, H, W) or (B, C, D, H, W), float16, bfloat16, float32,
            float64 or uint8.
        target: True images, same shape and device; the dtype may differ.
        gaussian_kernel: A Gaussian window (default) or a uniform one.
        sigma: Standard deviation of the Gaussian, in pixels; one number or one for each axis. It
            alone sets the window's size, ``2 * int(3.5 * sigma + 0.5) + 1``.
        kernel_size: Size of the uniform window, odd; one number or one for each axis. As in
            TorchMetrics it also sets the padding of a volume's last axis under a Gaussian.
        reduction: Of the images' values: ``"elementwise_mean"``, ``"sum"``, or ``"none"``
            (``None``) for one value an image.
        data_range: :math:`R`, a positive number; or a tuple ``(low, high)``, to which both inputs
            are clamped and :math:`R` is ``high - low``; or ``None``: the larger of the two tensors'
            ``max - min`` over the whole batch, found on the device.
        k1: Constant of the luminance term.
        k2: Constant of the contrast term.
        return_full_image: Also return the map.
        return_contrast_sensitivity: Also return each image's mean contrast term
            :math:`(2 \sigma_{xy} + c_2) / (\sigma_x^2 + \sigma_y^2 + c_2)` without the border.

    Returns:
        The value, or ``(value, map)`` with a map like the inputs, or ``(value, contrast)`` with
        ``contrast`` of shape (B,). The dtype is that of ``preds``, float32 for uint8.

    Raises:
        RuntimeError: If shapes or devices differ, a dtype is none of those above, or an image is
            not larger than the window's half.
        ValueError: If the shape is neither 4-D nor 5-D, a window size is not odd and positive, a
            ``sigma`` is not positive, their number does not fit, ``data_range`` or ``reduction`` is
            out of range, or both extra results are asked for.
        TypeError: If ``data_range`` is no number, tuple or ``None``.

    Reference:
        Wang, Bovik, Sheikh and Simoncelli, "Image quality assessment: from error visibility to
        structural similarity", IEEE Transactions on Image Processing 13(4), 2004.

    Example:
        >>> import torch
        >>> from syncfree.functional import structural_similarity_index_measure
        >>> x = torch.linspace(0, 1, 2 * 3 * 32 * 32).reshape(2, 3, 32, 32)
        >>> structural_similarity_index_measure(x, x, data_range=1.0)
        tensor(1.)
        >>> value, full = structural_similarity_index_measure(
        ...     x, 1 - x, data_range=1.0, return_full_image=True
        ... )
        >>> full.shape
        torch.Size([2, 3, 32, 32])
    """
    if return_full_image and return_contrast_sensitivity:
        raise ValueError(
            "Arguments `return_full_image` and `return_contrast_sensitivity` are mutually "
            "exclusive."
        )
    op = _ops.ssim
    if return_full_image:
        op = _ops.ssim_with_map
    elif return_contrast_sensitivity:
        op = _ops.ssim_with_contrast
    number, interval = (None, None) if data_range is None else parse_data_range(data_range)
    arguments = window_arguments(gaussian_kernel, sigma, kernel_size)
    code = reduction_code(reduction)
    result: Tensor | tuple[Tensor, Tensor] = without_gradient(
        op, preds, target, *arguments, number, interval, float(k1), float(k2), code
    )
    return result


def window_arguments(
    gaussian_kernel: bool, sigma: float | Sequence[float], kernel_size: int | Sequence[int]
) -> tuple[bool, Any, Any]:
    """The window as the ops take it: sequences, of which one entry counts for every axis."""
    sigmas = sigma if isinstance(sigma, Sequence) else (sigma,)
    sizes = kernel_size if isinstance(kernel_size, Sequence) else (kernel_size,)
    return gaussian_kernel, sigmas, sizes
