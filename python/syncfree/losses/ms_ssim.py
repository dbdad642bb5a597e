"""The loss that multi-scale SSIM gives."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from typing_extensions import Unpack  # torch depends on it

from syncfree.functional.image import multiscale_structural_similarity_index_measure
from syncfree.functional.image._options import check_betas, normalize_code
from syncfree.functional.image._preset import MsSsimPreset, check_ms_ssim_preset
from syncfree.losses._arguments import (
    DataRange,
    SSIMOptions,
    check_options,
    require_floats,
    require_known,
    require_range,
    window_of,
)


class MSSSIMOptions(SSIMOptions, total=False):
    """Arguments of `multiscale_structural_similarity_index_measure` that the loss passes on."""

    betas: tuple[float, ...]
    normalize: Literal["relu", "simple"] | None
    preset: MsSsimPreset


_KEYWORDS = MSSSIMOptions.__optional_keys__ | {"data_range"}


def ms_ssim_loss(
    preds: Tensor,
    target: Tensor,
    data_range: DataRange = 1.0,
    **options: Unpack[MSSSIMOptions],
) -> Tensor:
    r"""One minus multi-scale structural similarity: 0 for identical images, 1 at most.

    There is no mask: the value is a product of one mean per scale, not a mean over positions that
    could be weighted, and a window at the coarsest scale covers most of the image.

    Under ``normalize="relu"`` (default) an image whose mean at some scale is negative has loss 1
    and no gradient. If training begins with such images, use ``normalize="simple"``, which gives
    them a gradient.

    Args:
        preds: Estimated images, (B, C, H, W) or (B, C, D, H, W), of a floating dtype, of 176
            pixels or more in height and width with the default ``betas`` and window.
        target: True images, same shape and device, any floating dtype.
        data_range: Range of the values, a positive number, or a tuple ``(low, high)`` to which both
            images are clamped at each scale; clamped values get no gradient from that scale.
        **options: ``gaussian_kernel``, ``sigma``, ``kernel_size``, ``k1``, ``k2``, ``betas``,
            ``normalize`` and ``preset`` of `multiscale_structural_similarity_index_measure`.

    Returns:
        A scalar on the images' device, float64 for float64 ``preds``, else float32.

    Raises:
        RuntimeError: As for `multiscale_structural_similarity_index_measure`.
        ValueError: Likewise.
        TypeError: Likewise, and if ``data_range`` is ``None``, the images are integers, or an
            option is unknown.

    Reference:
        Wang, Simoncelli and Bovik, "Multiscale structural similarity for image quality assessment",
        37th Asilomar Conference on Signals, Systems and Computers, 2003. As a loss: Zhao, Gallo,
        Frosio and Kautz, "Loss functions for image restoration with neural networks", IEEE
        Transactions on Computational Imaging 3(1), 2017.

    Example:
        >>> import torch
        >>> from syncfree.losses import ms_ssim_loss
        >>> target = torch.linspace(0, 1, 3 * 192 * 192).reshape(1, 3, 192, 192)
        >>> preds = (0.75 * target).requires_grad_()
        >>> loss = ms_ssim_loss(preds, target)
        >>> loss.backward()
        >>> preds.grad.shape
        torch.Size([1, 3, 192, 192])
        >>> ms_ssim_loss(target, target)
        tensor(0.)
    """
    require_known("ms_ssim_loss", options, _KEYWORDS)
    require_range(data_range)
    require_floats(preds, target)
    value = multiscale_structural_similarity_index_measure(
        preds, target, data_range=data_range, **options
    )
    return 1 - value


class MSSSIMLoss(nn.Module):
    """`ms_ssim_loss` as a module.

    Args:
        data_range: Range of the values, a positive number or a tuple ``(low, high)``.
        **options: See `ms_ssim_loss`.

    Raises:
        TypeError: If an option is unknown or no number where one is expected, or ``data_range`` is
            neither a number nor a tuple of two.
        ValueError: If an option is out of range, or ``preset`` does not go with the window or with
            ``normalize``.

    Example:
        >>> import torch
        >>> from syncfree.losses import MSSSIMLoss
        >>> loss = MSSSIMLoss(data_range=255.0, betas=(0.4, 0.6))
        >>> image = torch.full((1, 3, 32, 32), 128.0)
        >>> loss(image, image)
        tensor(0.)
    """

    def __init__(self, data_range: DataRange = 1.0, **options: Unpack[MSSSIMOptions]) -> None:
        super().__init__()
        check_options(type(self).__name__, data_range, options, _KEYWORDS)
        check_betas(options.get("betas", ()))
        normalize_code(options.get("normalize"))
        preset = options.get("preset", "torchmetrics")
        if preset != "torchmetrics":
            check_ms_ssim_preset(preset, window_of(options), options.get("normalize", "relu"))
        self.data_range = data_range
        self.options = options

    def forward(self, preds: Tensor, target: Tensor) -> Tensor:
        """The loss of two batches of images; see `ms_ssim_loss` for shapes, dtypes and errors."""
        return ms_ssim_loss(preds, target, self.data_range, **self.options)

    def extra_repr(self) -> str:
        """The arguments, for printing a model."""
        arguments = {"data_range": self.data_range, **self.options}
        return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
