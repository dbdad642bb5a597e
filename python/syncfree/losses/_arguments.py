"""Arguments that the losses have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

DataRange = float | tuple[float, float]


class SSIMOptions(TypedDict, total=False):
    """Arguments of `structural_similarity_index_measure` that every loss passes on."""

    gaussian_kernel: bool
    sigma: float | Sequence[float]
    kernel_size: int | Sequence[int]
    k1: float
    k2: float


def require_range(data_range: object) -> None:
    """A range that follows the batch would make the loss of an image depend on its company."""
    if data_range is None:
        raise TypeError(
            "Expected argument `data_range` to be a number or a tuple of two numbers (low, high), "
            "but got None. A loss wants the same range for every batch: name it."
        )
