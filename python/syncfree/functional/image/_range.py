"""The `data_range` argument."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from syncfree._call_places import warn_at_call
from syncfree.functional._arguments import number, text_of

_UINT8 = torch.uint8
_WIDEST_OF_FLOATS = 2.0  # of images in [-1, 1]
_INFINITE = math.inf

_EXPECTED = "a number or a tuple of two numbers (low, high)"


def parse_data_range(
    data_range: object, preds: Any = None, target: Any = None
) -> tuple[float, tuple[float, float] | None]:
    """Splits ``data_range`` into the range itself and the interval to clamp to, if one is given.

    With images, warns if they are uint8 but the range is one for floats.
    """
    if type(data_range) is float and 0.0 < data_range < _INFINITE:  # fast path of the usual call
        result: tuple[float, tuple[float, float] | None] = data_range, None
    else:
        result = _parse(data_range)
    if (
        preds is not None
        and is_narrow(result[0])
        and (preds.dtype is _UINT8 or target.dtype is _UINT8)
    ):
        warn_of_bytes(result[0], preds, target)
    return result


def is_narrow(value_range: float | None) -> bool:
    """Whether the range is one for floats, so that uint8 images draw a warning."""
    return value_range is not None and value_range <= _WIDEST_OF_FLOATS


def warn_of_bytes(value_range: float, preds: Tensor, target: Tensor) -> None:
    """Warns of uint8 images with a range for floats; by default once for each calling line.

    The value is still TorchMetrics': uint8 images that hold only 0 and 1 have such a range. No
    pixel is read, so the host does not wait.
    """
    if not is_narrow(value_range) or is_dynamo_compiling():
        return
    for name, images in (("preds", preds), ("target", target)):
        if images.dtype is _UINT8:
            warn_at_call(
                f"`{name}` is uint8, whose values go up to 255, but `data_range` is "
                f"{value_range:g}. Pass `data_range=255.0`, or divide the images by 255. If they "
                "hold no more than that range, convert them with `.float()`."
            )
            return


def _parse(data_range: object) -> tuple[float, tuple[float, float] | None]:
    if isinstance(data_range, tuple):
        if len(data_range) != 2:
            raise TypeError(
                f"Expected argument `data_range` to be {_EXPECTED}, but got {text_of(data_range)}."
            )
        low, high = (number("data_range", x, _EXPECTED) for x in data_range)
        if not low < high or math.isinf(high - low):
            raise ValueError(
                "Expected argument `data_range` to be a tuple (low, high) of finite numbers with "
                f"low < high, but got {text_of(data_range)}."
            )
        return high - low, (low, high)
    if data_range is None:
        raise TypeError(
            f"Expected argument `data_range` to be {_EXPECTED}, but got None or nothing. Pass "
            "1.0 for images of floats in [0, 1], 255.0 for bytes."
        )
    value = number("data_range", data_range, _EXPECTED)
    if isinstance(data_range, Tensor) and data_range.requires_grad:
        raise TypeError(
            "Expected argument `data_range` to be a number, but got a tensor that requires a "
            "gradient, which would be lost. Pass `data_range.item()`."
        )
    if not 0 < value < _INFINITE:
        raise ValueError(
            "Expected argument `data_range` to be positive and finite, but got "
            f"{text_of(data_range)}."
        )
    return value, None
