"""Checks the arguments of an accuracy that follow its tensors.

Returns them as `_call.call` takes them: the task's own, the options and ``ignore_index``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from inspect import signature
from typing import Any

from torch.compiler import is_dynamo_compiling

from syncfree._ops import accuracy as ops
from syncfree.functional._arguments import plain
from syncfree.functional.classification._arguments import (
    Average,
    MultidimAverage,
    check_average,
    check_count,
    check_ignore_index,
    check_multidim_average,
    check_threshold,
    check_top_k,
)


def _remember(check: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """Caches the answers: checking arguments that never change takes as long as a small kernel.

    If the last argument, `validate_args`, is false, numbers may be of any type.
    """
    cached = lru_cache(maxsize=256, typed=True)(check)  # typed, since 1, 1.0 and True are equal
    names = tuple(signature(check).parameters)

    def checked(*arguments: Any) -> tuple[Any, ...]:
        if is_dynamo_compiling():  # dynamo warns about caches and needs none
            return check(*arguments)
        try:
            return cached(*arguments)
        except ValueError:
            if arguments[-1]:
                raise
        except TypeError:  # an argument without a hash, which the check refuses by name
            pass
        # Not cached, as the value of a tensor may change.
        return check(*(arguments if arguments[-1] else map(plain, names, arguments)))

    return checked


@_remember
def binary_arguments(
    threshold: float,
    multidim_average: MultidimAverage,
    ignore_index: int | None,
    validate_args: bool,
) -> tuple[Any, ...]:
    check_threshold(threshold, validate_args, " in the [0,1] range")
    check_multidim_average(multidim_average)
    check_ignore_index(ignore_index)
    samplewise = multidim_average == "samplewise"
    return (float(threshold),), *_pack("binary", "micro", samplewise, ignore_index, validate_args)


@_remember
def multiclass_arguments(
    num_classes: int | None,
    average: Average,
    top_k: int,
    multidim_average: MultidimAverage,
    ignore_index: int | None,
    validate_args: bool,
) -> tuple[Any, ...]:
    if num_classes is None and not (isinstance(average, str) and average == "micro"):
        raise ValueError(
            "Argument `num_classes` can only be `None` for `average='micro'`, "
            f"but got `average={average!r}`."
        )
    if num_classes is not None:
        check_count("num_classes", num_classes, 2 if validate_args else 1)
    top_k = check_top_k(top_k, num_classes)
    check_average(average)
    check_multidim_average(multidim_average)
    check_ignore_index(ignore_index)
    samplewise = multidim_average == "samplewise"
    options = _pack("multiclass", average, samplewise, ignore_index, validate_args)
    return (num_classes or 0, top_k), *options


@_remember
def multilabel_arguments(
    num_labels: int,
    threshold: float,
    average: Average,
    multidim_average: MultidimAverage,
    ignore_index: int | None,
    validate_args: bool,
) -> tuple[Any, ...]:
    check_count("num_labels", num_labels, 2 if validate_args else 1)
    check_threshold(threshold, validate_args)
    check_average(average)
    check_multidim_average(multidim_average)
    check_ignore_index(ignore_index)
    samplewise = multidim_average == "samplewise"
    options = _pack("multilabel", average, samplewise, ignore_index, validate_args)
    return (num_labels, float(threshold)), *options


def _pack(
    task: str, average: Average, samplewise: bool, ignore_index: int | None, validate: bool
) -> tuple[int, int]:
    options, index = ops.pack_options(average, samplewise, ignore_index, bool(validate))
    return options | ops.task_bits(task), index
