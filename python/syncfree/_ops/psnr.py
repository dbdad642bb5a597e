"""The ops behind `peak_signal_noise_ratio` and its class."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from syncfree._ops.checks import check_dtypes, check_same_shape, common_shape, floating
from syncfree._ops.registry import REDUCTIONS, bind


def _reduced_dims(rank: int, dim: Sequence[int] | None) -> set[int]:
    """The dimensions to reduce, as indices from 0; raises the errors of torch.sum."""
    reduced: set[int] = set()
    for d in dim or range(rank):
        if rank == 0:
            raise IndexError(f"Dimension specified as {d} but tensor has no dimensions")
        if not -rank <= d < rank:
            raise IndexError(
                "Dimension out of range (expected to be in range of "
                f"[{-rank}, {rank - 1}], but got {d})"
            )
        if d % rank in reduced:
            raise RuntimeError(f"dim {d % rank} appears multiple times in the list of dims")
        reduced.add(d % rank)
    return reduced


def _kept_sizes(tensor: Tensor, dim: Sequence[int] | None) -> list[int]:
    reduced = _reduced_dims(tensor.ndim, dim)
    return [size for d, size in enumerate(tensor.shape) if d not in reduced]


def _fake(
    preds: Tensor,
    target: Tensor,
    data_range: float,
    interval: Sequence[float] | None,
    base: float,
    reduction: int,
    dim: Sequence[int] | None,
) -> Tensor:
    check_same_shape(preds, target)
    check_dtypes(preds, target)
    kept = _kept_sizes(preds, dim)
    a, b = floating(preds), floating(target)
    dtype = a if a == b and kept else torch.float32
    if torch.float64 in (a, b):
        dtype = torch.float64
    return preds.new_empty(kept if reduction == REDUCTIONS["none"] else (), dtype=dtype)


psnr = bind("psnr", _fake)


def _fake_update(
    preds: Tensor,
    target: Tensor,
    squared_error: Tensor,
    total: Tensor,
    data_range: Tensor,
    interval: Sequence[float] | None,
    base: float,
) -> Tensor:
    check_same_shape(preds, target)
    check_dtypes(preds, target)
    return squared_error.new_empty(())


psnr_update = bind("psnr_update", _fake_update, ignores_gradient=True)


def _fake_with_squared_error(
    preds: Tensor,
    target: Tensor,
    data_range: Tensor,
    interval: Sequence[float] | None,
    base: float,
    reduction: int,
    dim: Sequence[int] | None,
) -> tuple[Tensor, Tensor]:
    check_same_shape(preds, target)
    check_dtypes(preds, target)
    kept = _kept_sizes(preds, dim)
    wide = torch.float64 in (preds.dtype, target.dtype)
    dtype = torch.float64 if wide else torch.float32
    value = preds.new_empty(kept if reduction == REDUCTIONS["none"] else (), dtype=dtype)
    return value, preds.new_empty(kept, dtype=dtype)


psnr_with_squared_error = bind(
    "psnr_with_squared_error", _fake_with_squared_error, ignores_gradient=True
)


def _fake_from_errors(
    squared_error: Tensor, total: Tensor, data_range: Tensor, base: float, reduction: int
) -> Tensor:
    names = "squared_error", "total"
    common_shape(squared_error, total, names)
    check_dtypes(squared_error, total, names)
    if data_range.numel() != 1:
        raise ValueError(
            f"Expected `data_range` to have one element, but got shape {list(data_range.shape)}."
        )
    check_dtypes(data_range, data_range, ("data_range", "data_range"))
    # Torch's own rules for shape and dtype, except that integers alone count as float32.
    if not (squared_error.is_floating_point() or total.is_floating_point()):
        squared_error = squared_error.float()
    data_range = data_range.to(floating(data_range))
    values = data_range.reshape(()).log() - (squared_error / total).log()
    each = reduction == REDUCTIONS["none"]
    return values.new_empty(values.shape if each else ())


psnr_from_errors = bind("psnr_from_errors", _fake_from_errors)
