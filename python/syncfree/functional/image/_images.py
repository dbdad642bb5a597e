"""Checks and converts two batches of images for the ops of SSIM, MS-SSIM and `image_quality`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from syncfree._ops.ssim import check_images
from syncfree.functional._arguments import require_tensors

_READ_BY_KERNELS = torch.float32, torch.float16, torch.bfloat16, torch.uint8, torch.float64
_INTEGERS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


def as_images(preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The images as kernels read them: integers on both sides become float32 unless both are uint8.

    Raises for shapes that are no batch of images, and for integers beside floats.
    """
    if (  # fast path of the usual call
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
    # Dynamo cannot trace a check that raises; the fake of the op raises the same error.
    if (two_units or preds.ndim not in (4, 5)) and not is_dynamo_compiling():
        check_images(preds, target)
    return preds, target
