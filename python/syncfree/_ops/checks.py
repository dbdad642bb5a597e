"""Checks of tensors for the ops' fakes; csrc/ops makes them too, with the same messages.

`torch._check` can compare symbolic sizes while torch.compile traces.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_DTYPES = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
)


def check_same_shape(
    preds: Tensor, target: Tensor, advice: Callable[[Tensor, Tensor], str] | None = None
) -> None:
    """Raises for different shapes, as TorchMetrics does."""

    def message() -> str:
        return (
            "Predictions and targets are expected to have the same shape, but got "
            f"{list(preds.shape)} and {list(target.shape)}."
            f"{(advice or _broadcast_advice)(preds, target)}"
        )

    torch._check(preds.ndim == target.ndim, message)
    for a, b in zip(preds.shape, target.shape, strict=True):
        torch._check(a == b, message)


def _broadcast_advice(preds: Tensor, target: Tensor) -> str:
    """How to expand one of the two; empty for (N, 1) beside (N,), which would become (N, N)."""
    if not (_expands(preds, target) or _expands(target, preds)):
        return ""
    return " If one is meant for all, pass `*torch.broadcast_tensors(preds, target)`."


def _expands(one: Tensor, all_: Tensor) -> bool:
    pairs = zip(reversed(one.shape), reversed(all_.shape), strict=False)
    return one.ndim <= all_.ndim and all(size in (1, whole) for size, whole in pairs)


def check_dtypes(
    first: Tensor, second: Tensor, names: tuple[str, str] = ("preds", "target")
) -> None:
    """Raises for dtypes that the kernels do not read."""
    for name, tensor in zip(names, (first, second), strict=True):
        if tensor.dtype not in _DTYPES:
            known = [dtype_name(dtype) for dtype in _DTYPES]
            advice = (
                "Take its `.abs()`, `.real` or `.imag`"
                if tensor.is_complex()
                else "Convert it with `.to(torch.float32)`"
            )
            raise RuntimeError(
                f"Expected `{name}` to be a tensor of {', '.join(known[:-1])} or {known[-1]}, but "
                f"got {dtype_name(tensor.dtype)}. {advice}."
            )


def check_running_mean(similarity: Tensor | None, total: Tensor, preds: Tensor) -> None:
    """Checks the states of a mean over batches."""
    if similarity is not None:
        _check_state("similarity", similarity, preds)
    _check_state("total", total, preds, may_count=True)


def _check_state(name: str, state: Tensor, preds: Tensor, may_count: bool = False) -> None:
    if state.numel() != 1:
        raise ValueError(
            f"Expected state `{name}` to have one element, but got shape {list(state.shape)}. "
            "Reset the metric, or make a new one."
        )
    if state.device != preds.device:
        raise RuntimeError(
            f"Expected state `{name}` on the device of the images, but it is on another. "
            "Move the metric there with `.to(device)`."
        )
    if not state.dtype.is_floating_point and not (may_count and state.dtype == torch.int64):
        kind = "a floating or an int64" if may_count else "a floating"
        raise ValueError(
            f"Expected state `{name}` to be {kind} tensor, but got {dtype_name(state.dtype)}. "
            "Reset the metric, or make a new one."
        )


def common_shape(a: Tensor, b: Tensor, names: tuple[str, str]) -> torch.Size:
    """The broadcast shape of two tensors."""
    try:
        shape: torch.Size = torch.broadcast_shapes(a.shape, b.shape)
    except RuntimeError as error:
        raise RuntimeError(
            f"Expected `{names[0]}` and `{names[1]}` of shapes that broadcast, but got "
            f"{list(a.shape)} and {list(b.shape)}."
        ) from error
    return shape


def dtype_name(dtype: torch.dtype) -> str:
    """The dtype's name, for example "float32"."""
    return str(dtype).removeprefix("torch.")


def floating(tensor: Tensor) -> torch.dtype:
    """The dtype of a floating tensor; float32 for any other, whose numbers count as such."""
    return tensor.dtype if tensor.dtype.is_floating_point else torch.float32
