"""Converts arguments of any type to what the ops take."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from torch import Tensor


def text_of(value: object) -> str:
    """A value as text for an error; its shape if a batch was given for an option."""
    if isinstance(value, Tensor) and value.numel() != 1:
        return (
            f"a tensor of shape {list(value.shape)}. Options are given where a metric is made, "
            "batches where it is called"
        )
    return reprlib.repr(value) if isinstance(value, (list, tuple)) else repr(value)


def number(name: str, value: Any, expected: str = "a number") -> float:
    """A real number, or a tensor of one element that the host can read, as a float."""
    if type(value) is float:  # fast path of the usual call
        return value
    _require_on_host(name, value)
    problem: type[Exception] = TypeError
    if hasattr(value, "__float__"):
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError) as error:
            problem = type(error)
    raise problem(f"Expected argument `{name}` to be {expected}, but got {text_of(value)}.")


def integer(name: str, value: Any, expected: str = "an integer") -> int:
    """A whole number of any type but bool as an int."""
    _require_on_host(name, value)
    if not isinstance(value, bool) and hasattr(value, "__index__"):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"Expected argument `{name}` to be {expected}, but got {text_of(value)}.")


def plain(name: str, value: Any) -> Any:
    """A number of NumPy, torch or another library as a Python number; other values unchanged."""
    if value is None or isinstance(value, (int, float, str)):
        return value
    _require_on_host(name, value)
    for convert in (operator.index, float):
        with suppress(TypeError, ValueError, RuntimeError):
            return convert(value)
    return value


def require_tensors(
    first: object, second: object, names: tuple[str, str] = ("preds", "target")
) -> None:
    """Raises TypeError for lists, arrays and anything else that is no tensor."""
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return
    for name, value in zip(names, (first, second), strict=True):
        # torch.fx and others trace with objects that stand for tensors.
        if not isinstance(value, Tensor) and not hasattr(type(value), "__torch_function__"):
            kind = "None" if value is None else type(value).__name__
            raise TypeError(
                f"Expected argument `{name}` to be a tensor, but got {kind}. "
                f"{_tensor_advice(name, value)}"
            )


def _tensor_advice(name: str, value: object) -> str:
    if value is None:
        return "Look whether what made it returns its result."
    if isinstance(value, Mapping):
        return "Pass the tensor in it that is meant."
    if isinstance(value, (list, tuple)) and any(isinstance(each, Tensor) for each in value):
        return f"Pass the tensor in it that is meant, or all as one: `torch.stack({name})`."
    if isinstance(value, (list, tuple, int, float)) or hasattr(value, "__array__"):
        return f"Make one of it with `torch.as_tensor({name})`."
    return "Pass a tensor."


def require_summed(*states: object) -> None:
    """Raises TypeError for a list state, where a batch is to be added to tensors."""
    if any(isinstance(state, list) for state in states):
        raise TypeError(
            "Expected states that are tensors, but got a list, which a metric has by its `dim` or "
            "its `reduction`. They are set where it is made: make a new metric."
        )


def _require_on_host(name: str, value: object) -> None:
    # If a whole batch was given, its device is not what is wrong.
    if isinstance(value, Tensor) and value.device.type != "cpu" and value.numel() == 1:
        raise TypeError(
            f"Expected argument `{name}` in host memory, but got a tensor on {value.device}, for "
            "which the host would have to wait. Pass a number, or a tensor on the CPU."
        )
