"""Losses that SSIM gives, alone and with the mean absolute error."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import Unpack  # torch depends on it

from syncfree.functional._arguments import number
from syncfree.functional.image import structural_similarity_index_measure
from syncfree.functional.image._preset import Preset, check_ssim_preset
from syncfree.functional.image._wide import (
    wide_similarity,
    wide_similarity_and_error,
    widened,
)
from syncfree.losses._arguments import (
    DataRange,
    SSIMOptions,
    check_options,
    negative_weights,
    require_floats,
    require_known,
    require_mask,
    require_range,
    require_size_that_counts,
    window_of,
)
from syncfree.losses._ssim_node import loss_as_one_node, mixture


class SSIMLossOptions(SSIMOptions, total=False):
    """Arguments that `ssim_loss` passes on."""

    preset: Preset


_SSIM_KEYWORDS = SSIMLossOptions.__optional_keys__ | {"data_range"}
_L1_KEYWORDS = SSIMOptions.__optional_keys__ | {"data_range", "weight"}


def ssim_loss(
    preds: Tensor,
    target: Tensor,
    data_range: DataRange = 1.0,
    mask: Tensor | None = None,
    **options: Unpack[SSIMLossOptions],
) -> Tensor:
    r"""One minus structural similarity: 0 for identical images, 2 at most.

    With a mask :math:`m`, the mean over all positions of the SSIM map becomes a weighted mean,

    .. math::
        \ell = \frac{\sum_i m_i \, (1 - \text{SSIM}_i)}{\sum_i m_i},

    and 0 where the mask is zero everywhere. The window around a position that counts may reach
    pixels that do not, so these must be finite too. A mask costs memory for the map, its gradient
    and the weights, and for float32 copies of half-precision ``preds``.

    Without a mask nothing of the images' size is stored, with one exception: one pass gives both
    the loss and its gradients, which are kept for the first backward pass. That is for contiguous
    float32 images on CUDA, at least 224 pixels high and wide (many sizes from 192 on with compute
    capability 9.0, 10.0 and 10.3) and a multiple of four wide, with the default window, no
    ``preset`` and a number for ``data_range``. It needs a GPU with 126 KiB of shared memory per
    multiprocessor (compute capability 8.0, 9.0, 10.0 and 10.3; not 7.5, 8.6, 8.9 and 12.0). If only
    the loss is needed, it takes a third of that pass under ``torch.no_grad()``. There are two
    passes under torch.compile, while a CUDA graph is captured, with activation checkpointing, and
    with hooks that move saved tensors.

    The loss of half-precision images is a float32 number, as torch's losses are under autocast:
    gradient scaling may take it beyond the range of float16.

    Args:
        preds: Estimated images, (B, C, H, W) or (B, C, D, H, W), of a floating dtype.
        target: True images, same shape and device, any floating dtype.
        data_range: Range of the values, a positive number, or a tuple ``(low, high)`` to which both
            inputs are clamped; clamped values get no gradient.
        mask: Weights, not negative, of any dtype and a shape that broadcasts to that of the map,
            for example (B, 1, H, W). With a negative weight the loss on CUDA is NaN.
        **options: ``gaussian_kernel``, ``sigma``, ``kernel_size``, ``k1``, ``k2`` and ``preset`` of
            `structural_similarity_index_measure`. The size of a Gaussian window follows ``sigma``;
            another ``kernel_size`` beside it is an error.

    Returns:
        A scalar on the images' device, float64 for float64 ``preds``, else float32.

    Raises:
        RuntimeError: As for `structural_similarity_index_measure`, or if the mask does not
            broadcast to the map.
        ValueError: As for `structural_similarity_index_measure`, or if a mask on the CPU holds a
            negative weight.
        TypeError: Likewise, and if ``data_range`` is ``None``, the images are integers, or an
            option is unknown.

    Reference:
        Wang, Bovik, Sheikh and Simoncelli, "Image quality assessment: from error visibility to
        structural similarity", IEEE Transactions on Image Processing 13(4), 2004.

    Example:
        >>> import torch
        >>> from syncfree.losses import ssim_loss
        >>> target = torch.linspace(0, 1, 3 * 16 * 16).reshape(1, 3, 16, 16)
        >>> preds = torch.full_like(target, 0.5).requires_grad_()
        >>> loss = ssim_loss(preds, target)
        >>> loss.backward()
        >>> preds.grad.shape
        torch.Size([1, 3, 16, 16])
        >>> left = (torch.arange(16) < 8).expand(1, 1, 16, 16)
        >>> ssim_loss(target, target, mask=left)
        tensor(0.)
    """
    require_known("ssim_loss", options, _SSIM_KEYWORDS)
    require_range(data_range)
    require_floats(preds, target)
    require_size_that_counts(preds, options)
    if mask is None:
        loss = loss_as_one_node(preds, target, 1.0, data_range, **options)
        return 1 - wide_similarity(preds, target, data_range, **options) if loss is None else loss
    _, full = structural_similarity_index_measure(
        widened(preds), target, data_range=data_range, return_full_image=True, **options
    )
    return _weighted_mean(1 - full, mask)


def l1_ssim_loss(
    preds: Tensor,
    target: Tensor,
    weight: float = 0.2,
    data_range: DataRange = 1.0,
    mask: Tensor | None = None,
    **options: Unpack[SSIMOptions],
) -> Tensor:
    r"""A mixture of the mean absolute error and structural similarity.

    .. math::
        \ell = (1 - w) \, |preds - target| + w \, (1 - \text{SSIM}(preds, target))

    as the mean over all positions, or weighted by a mask as in `ssim_loss`. One pass over the
    images gives both parts (one pass each for half-precision ``preds``), and one more gives their
    gradients; for large images one pass gives everything, as in `ssim_loss`. Only with a mask does
    torch compute the absolute errors.

    Args:
        preds: Estimated images, (B, C, H, W) or (B, C, D, H, W), of a floating dtype.
        target: True images, same shape and device, any floating dtype.
        weight: :math:`w`, the share of SSIM, in [0, 1].
        data_range: Range of the values for SSIM, a positive number; or a tuple ``(low, high)`` to
            which both inputs are clamped for both parts.
        mask: See `ssim_loss`. A volume's map must then have the shape of the images.
        **options: See `ssim_loss`, except ``preset``: both parts are taken over all pixels.

    Returns:
        A scalar on the images' device, float64 for float64 ``preds``, else float32.

    Raises:
        RuntimeError: As for `ssim_loss`.
        ValueError: Likewise, and if ``weight`` is outside [0, 1].
        TypeError: Likewise, and if there is a ``preset``, or ``weight`` is a tensor that requires a
            gradient.

    Reference:
        Zhao, Gallo, Frosio and Kautz, "Loss functions for image restoration with neural networks",
        IEEE Transactions on Computational Imaging 3(1), 2017. The default weight is that of Kerbl
        et al., "3D Gaussian splatting for real-time radiance field rendering", 2023.

    Example:
        >>> import torch
        >>> from syncfree.losses import l1_ssim_loss
        >>> target = torch.zeros(1, 3, 16, 16)
        >>> l1_ssim_loss(target + 0.1, target, weight=0.0)
        tensor(0.1000)
    """
    _refuse_preset("l1_ssim_loss()", options, "ssim_loss()")
    require_known("l1_ssim_loss", options, _L1_KEYWORDS)
    require_range(data_range)
    require_floats(preds, target)
    require_size_that_counts(preds, options)
    weight = _share(weight)
    if mask is None:
        loss = loss_as_one_node(preds, target, weight, data_range, **options)
        if loss is not None:
            return loss
        similarity, error = wide_similarity_and_error(preds, target, data_range, **options)
        return mixture(error, similarity, weight)
    _, full = structural_similarity_index_measure(
        widened(preds), target, data_range=data_range, return_full_image=True, **options
    )
    preds, target = preds.to(full.dtype), target.to(full.dtype)
    if isinstance(data_range, tuple):
        preds, target = preds.clamp(*data_range), target.clamp(*data_range)
    error = (preds - target).abs()
    return _weighted_mean((1 - weight) * error + weight * (1 - full), mask)


class SSIMLoss(nn.Module):
    """`ssim_loss` as a module: ``loss(preds, target)``, or ``loss(preds, target, mask)``.

    Options are fixed and checked here; a mask comes with each call.

    Args:
        data_range: Range of the values, a positive number or a tuple ``(low, high)``.
        **options: See `ssim_loss`.

    Raises:
        TypeError: If an option is unknown or no number where one is expected, or ``data_range`` is
            neither a number nor a tuple of two.
        ValueError: If an option is out of range, or ``preset`` does not go with the window.

    Example:
        >>> import torch
        >>> from syncfree.losses import SSIMLoss
        >>> loss = SSIMLoss(data_range=255.0)
        >>> image = torch.full((1, 3, 16, 16), 128.0)
        >>> loss(image, image)
        tensor(0.)
    """

    _known: ClassVar[frozenset[str]] = _SSIM_KEYWORDS

    def __init__(self, data_range: DataRange = 1.0, **options: Unpack[SSIMLossOptions]) -> None:
        super().__init__()
        name = type(self).__name__
        if "mask" in options:
            raise TypeError(
                f"{name}() got an unexpected keyword argument 'mask'. A mask comes with each call: "
                "`loss(preds, target, mask)`."
            )
        check_options(name, data_range, options, self._known)
        preset = options.get("preset", "torchmetrics")
        if preset != "torchmetrics":
            check_ssim_preset(preset, window_of(options))
        self.data_range = data_range
        self.options: SSIMOptions = options

    def forward(self, preds: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """The loss of two batches of images.

        Args:
            preds: Estimated images, (B, C, H, W) or (B, C, D, H, W).
            target: True images, same shape and device.
            mask: Weights of the positions, not negative, of any dtype and a shape that expands to
                that of the map, for example (B, 1, H, W) or (H, W); ``None`` counts all alike.

        Returns:
            A scalar, as `ssim_loss` returns it.

        Raises:
            RuntimeError: As for `ssim_loss`.
            ValueError: Likewise.
            TypeError: Likewise.
        """
        return ssim_loss(preds, target, self.data_range, mask, **self.options)

    def extra_repr(self) -> str:
        """The arguments, for printing a model."""
        arguments = {"data_range": self.data_range, **self.options}
        return ", ".join(f"{name}={value!r}" for name, value in arguments.items())


class L1SSIMLoss(SSIMLoss):
    """`l1_ssim_loss` as a module: ``loss(preds, target)``, or ``loss(preds, target, mask)``.

    Options are fixed and checked here; a mask comes with each call.

    Args:
        weight: Share of SSIM, in [0, 1].
        data_range: Range of the values, a positive number or a tuple ``(low, high)``.
        **options: See `ssim_loss`.

    Raises:
        TypeError: If an option is unknown or no number where one is expected, or ``data_range`` is
            neither a number nor a tuple of two.
        ValueError: If an option is out of range or ``weight`` outside [0, 1].

    Example:
        >>> import torch
        >>> from syncfree.losses import L1SSIMLoss
        >>> loss = L1SSIMLoss(weight=0.5)
        >>> image = torch.linspace(0, 1, 3 * 16 * 16).reshape(1, 3, 16, 16)
        >>> loss(image, image)
        tensor(0.)
    """

    _known = _L1_KEYWORDS

    def __init__(
        self,
        weight: float = 0.2,
        data_range: DataRange = 1.0,
        **options: Unpack[SSIMOptions],
    ) -> None:
        _refuse_preset(f"{type(self).__name__}()", options, "SSIMLoss()")
        super().__init__(data_range, **options)
        self.weight = _share(weight)

    def forward(self, preds: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """The loss of two batches of images.

        Args:
            preds: Estimated images, (B, C, H, W) or (B, C, D, H, W).
            target: True images, same shape and device.
            mask: Weights of the positions, not negative, of any dtype and a shape that expands to
                that of the map, for example (B, 1, H, W) or (H, W); ``None`` counts all alike.

        Returns:
            A scalar, as `l1_ssim_loss` returns it.

        Raises:
            RuntimeError: As for `l1_ssim_loss`.
            ValueError: Likewise.
            TypeError: Likewise.
        """
        return l1_ssim_loss(preds, target, self.weight, self.data_range, mask, **self.options)

    def extra_repr(self) -> str:
        """The arguments, for printing a model."""
        return f"weight={self.weight!r}, {super().extra_repr()}"


def _refuse_preset(loss: str, options: SSIMOptions, other: str) -> None:
    if "preset" in options:
        raise TypeError(f"{loss} takes no argument `preset`: use {other} with it.")


def _share(weight: float | Tensor) -> float:
    share = number("weight", weight)
    if not 0 <= share <= 1:
        raise ValueError(f"Expected argument `weight` to be in [0, 1], but got {weight!r}.")
    if isinstance(weight, Tensor) and weight.requires_grad:
        raise TypeError(
            "Expected argument `weight` to be a number, but got a tensor that requires a gradient, "
            "which would be lost. Weigh `ssim_loss` and torch's `l1_loss` yourself, or pass "
            "`weight.item()`."
        )
    return share


def _weighted_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The weighted mean; 0 if all weights are 0; NaN if one is negative: an error needs a wait."""
    require_mask(mask, values.shape)
    is_negative = negative_weights(mask)
    weights = mask.to(values.dtype).expand_as(values)
    total = weights.sum()
    mean = (values * weights).sum() / torch.where(total > 0, total, torch.ones_like(total))
    if is_negative is None:
        return mean
    # Not `where` on the mean itself, which would keep NaN from its gradients.
    return mean * torch.where(is_negative, torch.full_like(total, math.nan), torch.ones_like(total))
