"""Structural similarity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

from torch import Tensor

from syncfree._torchmetrics import resolve
from syncfree.functional.image._preset import Preset
from syncfree.functional.image._ssim_arguments import Reduction
from syncfree.functional.image._ssim_call import ssim_of

__all__ = [
    "multiscale_structural_similarity_index_measure",  # noqa: F822  of `__getattr__` below
    "structural_similarity_index_measure",
]


@overload
def structural_similarity_index_measure(
    preds: Tensor,
    target: Tensor,
    gaussian_kernel: bool = ...,
    sigma: float | Sequence[float] = ...,
    kernel_size: int | Sequence[int] = ...,
    reduction: Reduction = ...,
    data_range: float | tuple[float, float] | None = ...,
    k1: float = ...,
    k2: float = ...,
    return_full_image: Literal[False] = ...,
    return_contrast_sensitivity: Literal[False] = ...,
    *,
    preset: Preset = ...,
) -> Tensor: ...


@overload
def structural_similarity_index_measure(
    preds: Tensor,
    target: Tensor,
    gaussian_kernel: bool = ...,
    sigma: float | Sequence[float] = ...,
    kernel_size: int | Sequence[int] = ...,
    reduction: Reduction = ...,
    data_range: float | tuple[float, float] | None = ...,
    k1: float = ...,
    k2: float = ...,
    *,
    return_full_image: Literal[True],
    return_contrast_sensitivity: Literal[False] = ...,
    preset: Preset = ...,
) -> tuple[Tensor, Tensor]: ...


@overload
def structural_similarity_index_measure(
    preds: Tensor,
    target: Tensor,
    gaussian_kernel: bool = ...,
    sigma: float | Sequence[float] = ...,
    kernel_size: int | Sequence[int] = ...,
    reduction: Reduction = ...,
    data_range: float | tuple[float, float] | None = ...,
    k1: float = ...,
    k2: float = ...,
    *,
    return_full_image: Literal[False] = ...,
    return_contrast_sensitivity: Literal[True],
    preset: Preset = ...,
) -> tuple[Tensor, Tensor]: ...


@overload
def structural_similarity_index_measure(
    preds: Tensor,
    target: Tensor,
    gaussian_kernel: bool = ...,
    sigma: float | Sequence[float] = ...,
    kernel_size: int | Sequence[int] = ...,
    reduction: Reduction = ...,
    data_range: float | tuple[float, float] | None = ...,
    k1: float = ...,
    k2: float = ...,
    return_full_image: bool = ...,
    return_contrast_sensitivity: bool = ...,
    *,
    preset: Preset = ...,
) -> Tensor | tuple[Tensor, Tensor]: ...


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
    *,
    preset: Preset = "torchmetrics",
) -> Tensor | tuple[Tensor, Tensor]:
    r"""Structural similarity of two batches of images or volumes, 1 for identical ones.

    .. math::
        \text{SSIM}(x, y) = \frac{(2 \mu_x \mu_y + c_1)(2 \sigma_{xy} + c_2)}
        {(\mu_x^2 + \mu_y^2 + c_1)(\sigma_x^2 + \sigma_y^2 + c_2)}, \quad c_i = (k_i R)^2

    with means and variances under a window that slides over the image, mirrored at its borders
    without repeating the edge. The value of an image is the mean of its whole map.

    One kernel on the images' device and the current stream (two where the range comes from the
    data); nothing of the images' size is stored and the host never waits. Moments are taken of the
    sum and the difference of the images, so that bright or flat images lose no digits. They are
    computed in float32 (float64 for float64 ``preds``). An image's value has the same bits in any
    batch and any memory layout.

    Both images get a gradient if they require one, from the value, the map and the contrast alike;
    only the images are saved for it. Clamped values get none, and a range that comes from the data
    counts as a constant.

    Args:
        preds: Estimated images, (B, C, H, W) or (B, C, D, H, W), float16, bfloat16, float32,
            float64 or uint8. Other integers, on both sides, count as float32.
        target: True images, same shape and device; integers if ``preds`` are, else of any floating
            dtype.
        gaussian_kernel: A Gaussian window (default) or a uniform one.
        sigma: Standard deviation of the Gaussian, in pixels; one number or one for each axis. It
            alone sets the window's size, ``2 * int(3.5 * sigma + 0.5) + 1``.
        kernel_size: Size of the uniform window, odd; one number or one for each axis. As in
            TorchMetrics it also sets the padding of a volume's last axis under a Gaussian.
        reduction: How the images' values are reduced: ``"elementwise_mean"``, ``"sum"``, or
            ``"none"`` (``None``) for one value per image.
        data_range: :math:`R`, a positive number; or a tuple ``(low, high)``, to which both inputs
            are clamped and :math:`R` is ``high - low``; or ``None``: the larger of the two tensors'
            ``max - min`` over the whole batch, found on the device. A tensor of one element on the
            CPU counts as a number.
        k1: Constant of the luminance term.
        k2: Constant of the contrast term.
        return_full_image: Also return the map.
        return_contrast_sensitivity: Also return each image's mean contrast term
            :math:`(2 \sigma_{xy} + c_2) / (\sigma_x^2 + \sigma_y^2 + c_2)` without the border.
        preset: Whose definition: ``"torchmetrics"`` (default) is the one above. With the others,
            windows stay inside the image, so map and value have no border, and ``data_range`` may
            be left out only for uint8, where it is 255. ``"wang"`` (``ssim_index.m`` of the paper)
            and ``"pytorch-msssim"`` have the default window; ``"skimage"`` has a uniform one of 7
            pixels and sample variances. Each sets the window: leave out its arguments.

    Returns:
        The value, or ``(value, map)`` with a map like the inputs, or ``(value, contrast)`` with
        ``contrast`` of shape (B,). The dtype is that of ``preds``, float32 for integers.

    Raises:
        RuntimeError: If shapes or devices differ, a dtype is none of those above, or an image is
            not larger than half the window.
        ValueError: If the shape is neither 4-D nor 5-D, a window size is not odd and positive, a
            ``sigma`` is not positive, their number does not fit, ``data_range`` or ``reduction`` is
            out of range, both extra results are asked for, ``preset`` is none of those named, or
            it comes with a window or without a range that it needs.
        TypeError: If ``preds`` or ``target`` is not a dense tensor, one of them alone is floating,
            ``data_range`` is no number, tuple or ``None``, or another argument no number where one
            is expected.

    Warns:
        UserWarning: Once for each calling line, if the images are uint8 and ``data_range`` is 2
            or less.

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
    extra = "contrast" if return_contrast_sensitivity else None
    result: Tensor | tuple[Tensor, Tensor] = ssim_of(
        "map" if return_full_image else extra,
        preds,
        target,
        data_range,
        gaussian_kernel,
        sigma,
        kernel_size,
        reduction,
        k1,
        k2,
        preset,
    )
    return result


def __getattr__(name: str) -> Any:
    if name == "multiscale_structural_similarity_index_measure":
        # TorchMetrics has it in its module of this name; ours is in a module of its own.
        from syncfree.functional.image import ms_ssim

        return getattr(ms_ssim, name)
    return resolve(__name__, name, with_private=True)
