"""Checks of the arguments that classification metrics share, in TorchMetrics' words."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, get_args

from torch import Tensor

from syncfree._ops.accuracy import AVERAGES, TASKS
from syncfree._ops.accuracy_checks import MOST_TOP_K
from syncfree.functional._arguments import text_of

Average = Literal["micro", "macro", "weighted", "none"] | None
MultidimAverage = Literal["global", "samplewise"]

# As in csrc/ops/accuracy_arguments.cpp.
MOST_CLASSES = 2**31 - 1

MULTIDIM_AVERAGES: tuple[str, ...] = get_args(MultidimAverage)


def check_average(average: object) -> None:
    """Raises ValueError unless it is one of `AVERAGES`."""
    # The type comes first: arrays compare element by element.
    if not (average is None or isinstance(average, str)) or average not in AVERAGES:
        raise ValueError(
            f"Expected argument `average` to be one of {tuple(AVERAGES)}, but got {average!r}."
        )


def check_multidim_average(multidim_average: object) -> None:
    """Raises ValueError unless it is one of `MULTIDIM_AVERAGES`."""
    if not isinstance(multidim_average, str) or multidim_average not in MULTIDIM_AVERAGES:
        raise ValueError(
            f"Expected argument `multidim_average` to be one of {MULTIDIM_AVERAGES}, "
            f"but got {multidim_average!r}."
        )


def check_ignore_index(ignore_index: object) -> None:
    """Raises ValueError unless it is None or an integer."""
    if ignore_index is not None and not (
        isinstance(ignore_index, int) and -(2**63) <= ignore_index < 2**63
    ):
        raise ValueError(
            "Expected argument `ignore_index` to either be `None` or an integer, "
            f"but got {text_of(ignore_index)}.{_advice('ignore_index', ignore_index)}"
        )


def check_threshold(threshold: object, in_range: bool, where: str = "") -> None:
    """Raises ValueError unless it is a float, in [0, 1] if ``in_range``.

    A tensor is refused: the answer is cached, but the tensor's value may change.
    """
    kind = float if in_range else (float, int)
    if not isinstance(threshold, kind) or (in_range and not 0 <= threshold <= 1):
        raise ValueError(
            f"Expected argument `threshold` to be a float{where}, but got {text_of(threshold)}."
        )


def check_count(name: str, count: object, least: int) -> None:
    """Raises ValueError unless the number of classes or labels is an integer, ``least`` or more."""
    if not isinstance(count, int) or count < least:
        raise ValueError(
            f"Expected argument `{name}` to be an integer larger than {least - 1}, "
            f"but got {text_of(count)}.{_advice(name, count)}"
        )
    if count > MOST_CLASSES:
        raise ValueError(
            f"Expected argument `{name}` to be at most {MOST_CLASSES}, but got {count}."
        )


def _at_least_one(top_k: object) -> int:
    if isinstance(top_k, int) and top_k >= 1:
        return int(top_k)
    advice = _advice("top_k", top_k)
    if isinstance(top_k, (list, tuple)):
        advice = (
            " A metric's states count for one k: make a metric for each, or pass the list to the "
            "function `multiclass_accuracy`."
        )
    raise ValueError(
        "Expected argument `top_k` to be an integer larger than or equal to 1, "
        f"but got {text_of(top_k)}.{advice}"
    )


def check_top_k(top_k: object, num_classes: int | None) -> int:
    """``top_k`` as an int; raises ValueError unless it is an integer of 1 to ``num_classes``."""
    # NumPy's integers are taken, as in TorchMetrics. A tensor's value may change, or be on a GPU.
    if hasattr(top_k, "__index__") and not isinstance(top_k, Tensor):
        with suppress(TypeError):  # an array of several
            top_k = operator.index(top_k)
    top_k = _at_least_one(top_k)
    if top_k > (1 if num_classes is None else num_classes):
        raise ValueError(
            "Expected argument `top_k` to be smaller or equal to `num_classes` "
            f"but got {top_k} and {num_classes}."
        )
    return top_k


def top_k_list(top_k: Sequence[object]) -> list[int]:
    """Several k as integers; raises ValueError if one is none or less than 1."""
    if not 1 <= len(top_k) <= MOST_TOP_K:
        raise ValueError(
            f"Expected argument `top_k` to hold 1 to {MOST_TOP_K} integers, but got {len(top_k)}."
        )
    return [_at_least_one(k) for k in top_k]


def _advice(name: str, value: object) -> str:
    """What to do with an integer of NumPy or torch; empty for other values."""
    if isinstance(value, Tensor) and value.numel() != 1:
        return ""
    whole = not isinstance(value, int) and hasattr(value, "__index__")
    return f" Convert it with `int({name})`." if whole else ""


def parse_task(task: object) -> str:
    """The task's name in lower case; raises ValueError for another."""
    name = task.lower() if isinstance(task, str) else None
    if name not in TASKS:
        raise ValueError(
            f"Invalid Classification: expected one of {', '.join(map(repr, TASKS))}, "
            f"but got {task!r}."
        )
    return name


def required_int(name: str, value: object, task: str) -> int:
    """The value; raises ValueError unless it is an integer, since the task requires it."""
    if isinstance(value, int):
        return value
    raise ValueError(
        f"Optional arg `{name}` must be type `int` when task is {task}. Got {type(value)}"
    )
