"""The op behind `safe_divide`."""

from __future__ import annotations

import torch
from torch import Tensor

from syncfree._ops.checks import check_dtypes, common_shape, floating
from syncfree._ops.registry import bind


def _fake(num: Tensor, denom: Tensor, zero_division: float) -> Tensor:
    names = "num", "denom"
    shape = common_shape(num, denom, names)
    check_dtypes(num, denom, names)
    a, b = floating(num), floating(denom)
    dtype = torch.promote_types(a, b)
    if (num.ndim == 0) != (denom.ndim == 0):  # a scalar tensor does not promote the other
        dtype = b if num.ndim == 0 else a
    return num.new_empty(shape, dtype=dtype)


safe_divide = bind("safe_divide", _fake)
