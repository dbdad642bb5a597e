"""Peak signal-to-noise ratio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from syncfree._ops.psnr import psnr
from syncfree._ops.registry import reduction_code
from syncfree.functional._gradients import without_gradient
from syncfree.functional.image._range import parse_data_range


def peak_signal_noise_ratio(
    preds: Tensor,
    target: Tensor,
    data_range: float | tuple[float, float],
    base: float = 10.0,
    reduction: Literal["elementwise_mean", "sum", "none"] | None = "elementwise_mean",
    dim: int | Sequence[int] | None = None,
) -> Tensor:
    r"""Peak signal-to-noise ratio of two tensors of one shape, in decibels for ``base=10``.

    .. math::
        \text{PSNR} = 10 \cdot \log_{base} \frac{R^2}{\text{MSE}(preds, target)}

    One kernel on the tensors' device and the current stream: squares, sum, logarithm and reduction.
    The host never waits. Sums are float32 over short runs and float64 above them (all float64 for
    float64 input), in an order that depends on the shape alone.

    Args:
        preds: Estimated signal of any shape; float16, bfloat16, float32, float64, bool or integer.
        target: True signal, same shape and device; its dtype may differ.
        data_range: :math:`R`, a positive number, or a tuple ``(low, high)``: then both tensors are
            clamped to it and :math:`R` is ``high - low``.
        base: Base of the logarithm; positive, not 1.
        reduction: Of the values that ``dim`` leaves: ``"elementwise_mean"``, ``"sum"``, or
            ``"none"`` (``None``) for no reduction. Without ``dim`` there is one value and nothing
            to reduce.
        dim: Dimensions over which the error is averaged before the logarithm. ``None`` (default)
            and an empty sequence mean all. ``dim=(1, 2, 3)`` gives the PSNR of each image.

    Returns:
        A tensor on the inputs' device: float64 if an input is float64; otherwise float32 where all
        dimensions are averaged, and the inputs' common floating dtype where ``dim`` leaves some.
        Identical inputs give ``inf``, NaN in an input gives NaN, no elements give NaN.

    Raises:
        RuntimeError: If the shapes or devices differ, or a dimension is named twice.
        ValueError: If ``data_range``, ``base`` or ``reduction`` is out of range.
        TypeError: If ``data_range`` is neither a number nor a tuple of two.
        IndexError: If ``dim`` names a dimension that the tensors lack.

    Example:
        >>> import torch
        >>> from syncfree.functional import peak_signal_noise_ratio
        >>> preds = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
        >>> target = torch.tensor([[3.0, 2.0], [1.0, 0.0]])
        >>> peak_signal_noise_ratio(preds, target, data_range=3.0)
        tensor(2.5527)
    """
    number, interval = parse_data_range(data_range)
    if not base > 0 or base == 1:
        raise ValueError(f"Expected argument `base` to be positive and not 1, but got {base}.")
    dims = (dim,) if isinstance(dim, int) else dim
    code = reduction_code(reduction)
    value: Tensor = without_gradient(psnr, preds, target, number, interval, float(base), code, dims)
    return value
