"""Multi-scale structural similarity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from syncfree._ops.registry import REDUCTIONS, reduction_code
from syncfree.functional.image._images import as_images
from syncfree.functional.image._ms_ssim_call import ms_ssim_of
from syncfree.functional.image._ms_ssim_preset import ms_ssim_by_preset
from syncfree.functional.image._options import check_betas, normalize_code
from syncfree.functional.image._preset import MsSsimPreset, Window, check_ms_ssim_preset
from syncfree.functional.image._ssim_arguments import Reduction

# Of Wang, Simoncelli and Bovik, from the finest scale to the coarsest.
_BETAS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)


def multiscale_structural_similarity_index_measure(
    preds: Tensor,
    target: Tensor,
    gaussian_kernel: bool = True,
    sigma: float | Sequence[float] = 1.5,
    kernel_size: int | Sequence[int] = 11,
    reduction: Reduction = "elementwise_mean",
    data_range: float | tuple[float, float] | None = None,
    k1: float = 0.01,
    k2: float = 0.03,
    betas: tuple[float, ...] = _BETAS,
    normalize: Literal["relu", "simple"] | None = "relu",
    *,
    preset: MsSsimPreset = "torchmetrics",
) -> Tensor:
    r"""Multi-scale structural similarity of two batches of images or volumes, 1 for identical ones.

    .. math::
        \text{MS-SSIM}(x, y) = \text{SSIM}(x_M, y_M)^{\beta_M} \prod_{j=1}^{M-1}
        \text{CS}(x_j, y_j)^{\beta_j}

    where :math:`x_1` is the image and each further scale is the one before it, averaged over 2 x 2
    pixels (2 x 2 x 2 in a volume; an odd last row or column is left out). SSIM is the mean of
    `structural_similarity_index_measure`, and CS that of its contrast term without the border.

    There is one kernel per scale, which also writes the images of the next scale. The scales of
    small images share one kernel, after another that pools for them. A small block multiplies the
    means. All run on the images' device and the current stream; the host never waits. Arithmetic is
    that of SSIM. During the call the pooled images are kept as float32 (float64 for float64
    ``preds``); they have a third of the inputs' elements (a seventh for volumes). An image's value
    has the same bits in any batch and any memory layout.

    Both images get a gradient if they require one, in one more kernel per scale; the images of all
    scales are saved for it. Clamped values get none from the scales at which they were clamped, and
    a range that comes from the data counts as a constant. An image whose mean at some scale is not
    positive has the value 0 under ``"relu"`` and then no gradient, not an infinite one: a loss may
    prefer ``"simple"``.

    Args:
        preds: Estimated images, (B, C, H, W) or (B, C, D, H, W), float16, bfloat16, float32,
            float64 or uint8. Height and width are at least ``2 ** len(betas)`` and
            ``kernel_size * max(1, len(betas) - 1) ** 2``, which is 176 with the defaults. Other
            integers than uint8, on both sides, count as float32.
        target: True images, same shape and device; integers if ``preds`` are, else of any floating
            dtype.
        gaussian_kernel: A Gaussian window (default) or a uniform one.
        sigma: Standard deviation of the Gaussian, as in `structural_similarity_index_measure`.
        kernel_size: Size of the uniform window; it also counts in the rule for sizes under a
            Gaussian.
        reduction: How the images' values are reduced: ``"elementwise_mean"``, ``"sum"``, or
            ``"none"`` (``None``) for one value per image.
        data_range: A positive number; or a tuple ``(low, high)``, to which both images are clamped
            at each scale; or ``None``: the larger of the two tensors' ``max - min`` over the whole
            batch, found on the device again at each scale.
        k1: Constant of the luminance term.
        k2: Constant of the contrast term.
        betas: Exponents from the finest scale to the coarsest; one for each scale.
        normalize: What happens to the means before the powers: ``"relu"`` makes negative ones zero,
            ``"simple"`` takes :math:`(x + 1) / 2`, ``None`` leaves them, so that the power of a
            negative one is NaN.
        preset: Whose definition: ``"torchmetrics"`` (default) is the one above. With ``"wang"``
            (``msssim.m`` of the paper) and ``"pytorch-msssim"`` windows stay inside the image, each
            channel has a product of its own, and a last odd row or column is not left out but
            averaged alone (``"wang"``) or with a border of zeros (``"pytorch-msssim"``). Each sets
            the window and ``normalize`` (leave them out) and needs ``data_range`` except for uint8.
            These presets take several launches and keep the images of each scale in memory, with
            float32 copies of other dtypes.

    Returns:
        One value, or (B,) without a reduction: float64 for float64 ``preds``, else float32.

    Raises:
        RuntimeError: If shapes or devices differ, a dtype is none of those above, or the images of
            a scale are not larger than half the window.
        ValueError: If the shape is neither 4-D nor 5-D, images are too small for ``betas``, a
            window size is not odd and positive, a ``sigma`` is not positive, their number does not
            fit, ``betas`` is no tuple of floats, ``data_range``, ``normalize`` or ``reduction`` is
            out of range, ``preset`` is none of those named, or it comes with arguments that it sets
            or without a range that it needs.
        TypeError: If ``preds`` or ``target`` is not a dense tensor, one of them alone is floating,
            ``data_range`` is no number, tuple or ``None``, or another argument no number where one
            is expected.

    Warns:
        UserWarning: Once for each calling line, if the images are uint8 and ``data_range`` is 2
            or less.

    Reference:
        Wang, Simoncelli and Bovik, "Multiscale structural similarity for image quality assessment",
        37th Asilomar Conference on Signals, Systems and Computers, 2003.

    Example:
        >>> import torch
        >>> from syncfree.functional import multiscale_structural_similarity_index_measure
        >>> x = torch.linspace(0, 1, 3 * 192 * 192).reshape(1, 3, 192, 192)
        >>> multiscale_structural_similarity_index_measure(x, x, data_range=1.0)
        tensor(1.)
        >>> multiscale_structural_similarity_index_measure(0.75 * x, x, data_range=1.0)
        tensor(0.9845)
    """
    check_betas(betas)
    if preset != "torchmetrics":
        normalize_code(normalize)
        preds, target = as_images(preds, target)
        check_ms_ssim_preset(preset, Window(gaussian_kernel, sigma, kernel_size), normalize)
        code = reduction_code(reduction)
        values = ms_ssim_by_preset(preset, preds, target, data_range, k1, k2, betas)
        return reduced(values, code)
    value: Tensor = ms_ssim_of(
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
        betas,
        normalize,
    )
    return value


def reduced(values: Tensor, code: int) -> Tensor:
    """The images' values, reduced as the code says."""
    if code == REDUCTIONS["none"]:
        return values
    return values.sum() if code == REDUCTIONS["sum"] else values.mean()
