"""Converts what a data set gives for an index to tensors, as torch's `default_collate` does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def tensors_of(given: Any) -> tuple[Tensor, Tensor]:
    """The input and the target of an item.

    Raises:
        TypeError: It is no pair, or one of the two is neither a tensor nor numbers.
    """
    try:
        if isinstance(given, Mapping):
            raise TypeError  # a mapping would be unpacked to its keys
        source, target = given
    except (TypeError, ValueError):
        count = f" of {len(given)}" if isinstance(given, tuple | list) else ""
        raise TypeError(
            "a data set gives an input and a target for an index, but this one gave "
            f"{type(given).__name__}{count}; wrap it in one whose __getitem__ returns the pair"
        ) from None
    return _as_tensor("input", source), _as_tensor("target", target)


def _as_tensor(what: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if type(value).__module__ == "numpy":  # tested as torch does, without importing NumPy
        # A copy has no negative strides and may be written to, as torch requires.
        array = value.copy()
        if array.dtype.kind in "biufc":
            return torch.as_tensor(array, device="cpu")
        kind = f"numpy {type(value).__name__} of {array.dtype}"
    elif isinstance(value, float):
        return torch.tensor(value, dtype=torch.float64, device="cpu")
    elif isinstance(value, int):
        return torch.tensor(value, device="cpu")
    else:
        kind = type(value).__name__
    raise TypeError(
        f"the {what} of an item is a tensor, a number or a numpy array of numbers, but got "
        f"{kind}; convert it where the data set loads it, such as by a transform"
    )
