"""ATen operations that make the host wait for a GPU, with the reason.

The list follows torch's CUDA kernels; the operations tagged `data_dependent_output` and
`dynamic_output_shape` are a part of it. A rule tells for a call whether it waits; it is asked only
about calls with a marked tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from syncfree.detector.tier0.residence import on_device

Rule = Callable[[Sequence[Any], dict[str, Any]], bool]

_SHAPE = "The shape of the result depends on values, so the host has to wait for their count."
_VALUE = "The host needs the value itself, so it waits for the GPU and copies it."
_CHECK = "The operation looks at values on the host to check them."
_NORMS = "The host reads the norms of the matrices to choose how to compute."
_INFO = "The host reads the solver's error code before it goes on."

_MASKS = (torch.bool, torch.uint8)


def _argument(args: Sequence[Any], kwargs: dict[str, Any], index: int, name: str) -> Any:
    return args[index] if len(args) > index else kwargs.get(name)


def _always(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    return True


def _is_mask(index: Any) -> bool:
    return isinstance(index, Tensor) and index.dtype in _MASKS and on_device(index)


def _reads_mask(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    return any(map(_is_mask, _argument(args, kwargs, 1, "indices")))


def _writes_through_mask(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """A single mask with one number from the host becomes a masked_fill, which does not wait."""
    indices = [index for index in _argument(args, kwargs, 1, "indices") if index is not None]
    value = _argument(args, kwargs, 2, "values")
    fills = len(indices) == 1 and value.numel() == 1 and not on_device(value)
    return not fills and any(map(_is_mask, indices))


def _repeats_unknown(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    return kwargs.get("output_size") is None


def _fills_with_tensor(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """For `masked_fill(mask, value)` and `index_fill(dim, index, value)`: the value comes last."""
    value = kwargs.get("value", args[-1])
    return isinstance(value, Tensor) and on_device(value)


def _fills_host(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    return not on_device(args[0])


def _checks_lengths(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    lengths = kwargs.get("lengths")
    return lengths is not None and on_device(lengths) and not kwargs.get("unsafe", False)


def _finds_range(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    low, high = _argument(args, kwargs, 2, "min"), _argument(args, kwargs, 3, "max")
    return (low or 0) == (high or 0)


def _sorts(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Small sets are compared one by one, without a wait; the limit is that of torch's `isin`."""
    elements, tests = args[0], args[1]
    if not (isinstance(elements, Tensor) and isinstance(tests, Tensor)):
        return False
    unique = kwargs.get("assume_unique", False)
    return not unique and tests.numel() >= 10 * elements.numel() ** 0.145


def _has_elements(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    return bool(_argument(args, kwargs, 0, "self").numel())


def _has_matrices(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """For 1 x 1 matrices torch takes the exponential of the number."""
    return _has_elements(args, kwargs) and _argument(args, kwargs, 0, "self").shape[-1] > 1


def _checks_errors(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """The check itself is called below the level at which a dispatch mode sees operations."""
    return bool(kwargs.get("check_errors", False))


def _checks_sorter(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    sorter = kwargs.get("sorter")
    return sorter is not None and on_device(sorter)


def _deviations_given(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    return isinstance(_argument(args, kwargs, 1, "std"), Tensor)


RULES: dict[str, tuple[str, Rule]] = {
    "aten::_local_scalar_dense": (_VALUE, _always),
    "aten::equal": (_VALUE, _always),
    "aten::allclose": (_VALUE, _always),
    "aten::nonzero": (_SHAPE, _always),
    "aten::argwhere": (_SHAPE, _always),
    "aten::masked_select": (_SHAPE, _always),
    "aten::masked_fill": (_VALUE, _fills_with_tensor),
    "aten::masked_fill_": (_VALUE, _fills_with_tensor),
    "aten::fill_": (_VALUE, _fills_host),
    "aten::index_fill": (_VALUE, _fills_with_tensor),
    "aten::index_fill_": (_VALUE, _fills_with_tensor),
    "aten::segment_reduce": (_CHECK, _checks_lengths),
    "aten::masked_scatter_backward": (_SHAPE, _always),
    "aten::index": (_SHAPE, _reads_mask),
    "aten::index_put": (_SHAPE, _writes_through_mask),
    "aten::index_put_": (_SHAPE, _writes_through_mask),
    "aten::_index_put_impl_": (_SHAPE, _writes_through_mask),
    "aten::_unique": (_SHAPE, _always),
    "aten::_unique2": (_SHAPE, _always),
    "aten::unique_dim": (_SHAPE, _always),
    "aten::unique_consecutive": (_SHAPE, _always),
    "aten::unique_dim_consecutive": (_SHAPE, _always),
    "aten::bincount": (_SHAPE, _always),
    "aten::repeat_interleave": (_SHAPE, _repeats_unknown),
    "aten::isin": (_SHAPE, _sorts),
    "aten::histc": (_VALUE, _finds_range),
    "aten::linspace": (_VALUE, _always),
    "aten::logspace": (_VALUE, _always),
    "aten::normal": (_CHECK, _deviations_given),
    "aten::embedding_renorm_": (_SHAPE, _always),
    "aten::_coalesce": (_SHAPE, _always),
    "aten::_to_sparse": (_SHAPE, _always),
    "aten::_to_sparse_csr": (_SHAPE, _always),
    "aten::_to_sparse_csc": (_SHAPE, _always),
    "aten::_to_sparse_bsr": (_SHAPE, _always),
    "aten::_to_sparse_bsc": (_SHAPE, _always),
    "aten::_nested_tensor_from_mask": (_SHAPE, _always),
    "aten::_nested_tensor_from_mask_left_aligned": (_VALUE, _always),
    "aten::_linalg_check_errors": (_INFO, _always),
    **{
        f"aten::{name}": (_INFO, _checks_errors)
        for name in (
            "linalg_cholesky_ex",
            "linalg_inv_ex",
            "linalg_ldl_factor_ex",
            "linalg_lu_factor_ex",
            "_linalg_solve_ex",
        )
    },
    "aten::searchsorted": (_CHECK, _checks_sorter),
    "aten::_linalg_eigh": (_INFO, _always),
    "aten::_linalg_svd": (_INFO, _always),
    "aten::linalg_eig": (_INFO, _always),
    "aten::linalg_lstsq": (_INFO, _always),
    "aten::linalg_pinv": (_INFO, _has_elements),
    "aten::linalg_matrix_exp": (_NORMS, _has_matrices),
    "aten::cholesky": (_INFO, _always),
    "aten::cholesky_inverse": (_INFO, _always),
}
