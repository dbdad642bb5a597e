"""What SSIM and its kin ask of two batches of images before an op sees them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from syncfree._ops.ms_ssim import MAX_SCALES, check_scales
from syncfree._ops.ssim import check_images
from syncfree.functional._arguments import require_tensors

_READ_BY_KERNELS = torch.float32, torch.float16, torch.bfloat16, torch.uint8, torch.float64
_INTEGERS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


def as_images(preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The two as kernels read them: other integers than uint8, on both sides, become float32.

    Raises for shapes that are no batch of images, and for integers beside floats.
    """
    if (  # the usual call, kept quick
        isinstance(preds, Tensor)
        and isinstance(target, Tensor)
        and preds.dtype is target.dtype
        and preds.dtype in _READ_BY_KERNELS
        and preds.ndim in (4, 5)
    ):
        return preds, target
    require_tensors(preds, target)
    dtypes = {preds.dtype, target.dtype}
    if dtypes <= _INTEGERS and dtypes != {torch.uint8}:
        preds, target = preds.float(), target.float()
    two_units = bool(dtypes & _INTEGERS) and not dtypes <= _INTEGERS
    # Dynamo cannot trace what raises; the fake of the op says the same.
    if (two_units or preds.ndim not in (4, 5)) and not is_dynamo_compiling():
        check_images(preds, target)
    return preds, target


def require_scales(preds: Tensor, target: Tensor, scales: int, kernel_size: Sequence[int]) -> None:
    """Raises for images too small for their scales, with more advice than the op has."""
    if is_dynamo_compiling() or not 1 <= scales <= MAX_SCALES:
        return  # sizes may be symbols; the op counts the scales
    least = max(2**scales, max(kernel_size, default=0) * max(1, (scales - 1) ** 2))
    if min(preds.shape[-2:]) >= least:
        return
    check_images(preds, target)
    try:
        check_scales(preds, scales, kernel_size)
    except ValueError as error:
        # A Gaussian keeps its width by sigma, whatever `kernel_size` is.
        smaller = ", or `gaussian_kernel=False` with a smaller `kernel_size`"
        halves = min(preds.shape[-2:]) >= 2**scales
        raise ValueError(
            f"{error} Got images of shape {list(preds.shape)}. Use larger images or fewer `betas`"
            f"{smaller if halves else ''}."
        ) from None
