"""Peak signal-to-noise ratio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from torch import Tensor
from torch.compiler import is_dynamo_compiling

from syncfree._ops.psnr import psnr
from syncfree._ops.psnr_backward import DifferentiablePsnr
from syncfree._ops.quick_calls import checking_images
from syncfree._ops.registry import reduction_code
from syncfree._torchmetrics import resolve
from syncfree.functional._arguments import integer, number, require_tensors
from syncfree.functional._gradients import with_gradient
from syncfree.functional.image._preset import PsnrPreset, psnr_preset
from syncfree.functional.image._range import is_narrow, parse_data_range

__all__ = ["peak_signal_noise_ratio"]


def peak_signal_noise_ratio(
    preds: Tensor,
    target: Tensor,
    data_range: float | tuple[float, float] | None = None,
    base: float = 10.0,
    reduction: Literal["elementwise_mean", "sum", "none"] | None = "elementwise_mean",
    dim: int | tuple[int, ...] | list[int] | None = None,
    *,
    preset: PsnrPreset = "torchmetrics",
) -> Tensor:
    r"""Peak signal-to-noise ratio of two tensors of one shape, in decibels for ``base=10``.

    .. math::
        \text{PSNR} = 10 \cdot \log_{base} \frac{R^2}{\text{MSE}(preds, target)}

    One kernel on the tensors' device and the current stream: squares, sum, logarithm and reduction.
    The host never waits. Sums are float32 over short runs and float64 above them (all float64 for
    float64, int32 and int64 input), in an order that depends on the shape alone. Tensors are copied
    first only if they have more than eight dimensions even after neighboring dimensions are merged
    where strides allow it.

    Both tensors get a gradient if they require one; only the tensors are saved for it. Clamped
    values get none, and neither do identical tensors, whose PSNR is infinite.

    Args:
        preds: Estimated signal of any shape; float16, bfloat16, float32, float64, bool or integer.
        target: True signal, same shape and device; its dtype may differ. Numbers are compared as
            they are: divide bytes by 255 first if the other tensor has floats in [0, 1].
        data_range: :math:`R`, a positive number, or a tuple ``(low, high)``: then both tensors are
            clamped to it and :math:`R` is ``high - low``. A tensor of one element on the CPU counts
            as a number. May be left out only with a ``preset``.
        base: Base of the logarithm; positive, not 1.
        reduction: How the values that ``dim`` leaves are reduced: ``"elementwise_mean"``,
            ``"sum"``, or ``"none"`` (``None``) for no reduction. Without ``dim`` there is one value
            and nothing to reduce.
        dim: Dimensions over which the error is averaged before the logarithm. ``None`` (default),
            ``()`` and ``[]`` mean all. ``dim=(1, 2, 3)`` gives the PSNR of each image.
        preset: ``"skimage"`` takes the PSNR of each image of a batch (B, C, H, W) or (B, C, D, H,
            W), as scikit-image does, and then their mean or what ``reduction`` says. Leave out
            ``dim``; for uint8 you may leave out ``data_range``, which is then 255.

    Returns:
        A tensor on the inputs' device: float64 if an input is float64; otherwise float32 where all
        dimensions are averaged, and the inputs' common floating dtype where ``dim`` leaves some.
        Identical inputs give ``inf``, NaN in an input gives NaN, no elements give NaN.

    Raises:
        RuntimeError: If the shapes or devices differ, a dtype is none of those above, or a
            dimension is named twice.
        ValueError: If ``data_range``, ``base`` or ``reduction`` is out of range, ``preset`` is none
            of those named, or the shape, ``dim`` or a missing range does not fit it.
        TypeError: If ``preds`` or ``target`` is not a dense tensor, ``data_range`` neither a number
            nor a tuple of two, ``base`` no number, or ``dim`` no integer, tuple or list of them.
        IndexError: If ``dim`` names a dimension that the tensors lack.

    Warns:
        UserWarning: Once for each calling line, if a tensor is uint8 and ``data_range`` is 2 or
            less.

    Reference:
        Huynh-Thu and Ghanbari, "Scope of validity of PSNR in image/video quality assessment",
        Electronics Letters 44(13), 2008.

    Example:
        >>> import torch
        >>> from syncfree.functional import peak_signal_noise_ratio
        >>> preds = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
        >>> target = torch.tensor([[3.0, 2.0], [1.0, 0.0]])
        >>> peak_signal_noise_ratio(preds, target, data_range=3.0)
        tensor(2.5527)
    """
    run = _psnr_of_any if is_dynamo_compiling() else _psnr
    value: Tensor = run(preds, target, data_range, base, reduction, dim, preset)
    return value


def _psnr_of_any(
    preds: Tensor, target: Tensor, data_range: Any, base: Any, reduction: Any, dim: Any, preset: Any
) -> Any:
    require_tensors(preds, target)
    if preset != "torchmetrics":
        data_range, dim = psnr_preset(preset, preds, target, data_range, dim)
    options = _arguments(preds, target, data_range, base, reduction, dim)
    return with_gradient(psnr, DifferentiablePsnr, preds, target, *options)


def _arguments(
    preds: Any, target: Any, data_range: Any, base: Any, reduction: Any, dim: Any
) -> tuple[Any, ...]:
    value_range, interval = parse_data_range(data_range, preds, target)
    return value_range, interval, parse_base(base), reduction_code(reduction), dimensions(dim)


def _arguments_of_options(of_bytes: bool, *options: Any) -> tuple[Any, ...] | None:
    *others, preset = options
    if preset != "torchmetrics":
        return None
    arguments = _arguments(None, None, *others)
    return None if of_bytes and is_narrow(arguments[0]) else arguments


_psnr = checking_images(psnr, _arguments_of_options, _psnr_of_any)


def parse_base(base: object) -> float:
    """The base of a logarithm as a number."""
    if type(base) is float and base > 1:  # fast path of the usual call
        return base
    value = number("base", base)
    if not value > 0 or value == 1:
        raise ValueError(f"Expected argument `base` to be positive and not 1, but got {base}.")
    return value


def dimensions(dim: Any) -> Sequence[int] | None:
    """``dim`` as the ops take it."""
    if dim is None:
        return None
    dims = dim if isinstance(dim, (tuple, list)) else (dim,)
    for d in dims:
        if type(d) is not int:
            expected = "an integer or a tuple or list of integers"
            return [integer("dim", d, expected) for d in dims]
    return dims


def __getattr__(name: str) -> Any:
    return resolve(__name__, name, with_private=True)
