"""The accuracy ops: the values of a batch, and counts over many batches.

For each task, ``ACCURACY`` gives the value of a batch; ``UPDATE`` adds TorchMetrics' counts to a
metric's states, in place; ``FORWARD`` does so and gives the value of the batch; ``COUNTS`` gives
the counts of each sample. ``multiclass_accuracy_top_k`` gives the values of a batch for several k.
``bad``, one int64 element, counts the labels that were left out as errors.
``accuracy_from_counts`` turns counts into accuracy, NaN where ``bad`` is not zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from syncfree import _error_records  # noqa: F401  (warns at exit of errors that nobody has read)
from syncfree._ops.accuracy_checks import (
    check_class_labels,
    check_class_scores,
    check_classes,
    check_elements,
    check_several_top_k,
    check_sizes,
)
from syncfree._ops.checks import check_dtypes, dtype_name
from syncfree._ops.registry import bind

# As in csrc/accuracy/accuracy.h.
AVERAGES: dict[str | None, int] = {"micro": 0, "macro": 1, "weighted": 2, "none": 3, None: 3}
TASKS: dict[str, int] = {"binary": 0, "multiclass": 1, "multilabel": 2}

# Bits of ``options``, from csrc/ops/accuracy_arguments.h; those above them are `_error_records`'s.
_SAMPLEWISE, VALIDATE, _HAS_IGNORE_INDEX = 4, 8, 16
_TASK_SHIFT, _SEVERAL = 5, 128


def pack_options(
    average: str | None, samplewise: bool, ignore_index: int | None, validate: bool
) -> tuple[int, int]:
    """The ``options`` and ``ignore_index`` of the ops, packed: a scalar costs 0.2 us per call."""
    options = AVERAGES[average] | (_SAMPLEWISE * samplewise) | (VALIDATE * validate)
    if ignore_index is None:
        return options, 0
    return options | _HAS_IGNORE_INDEX, ignore_index


def validates(options: int) -> bool:
    """Whether bad labels are errors, which are recorded with the number of the call."""
    return bool(options & VALIDATE)


def gives_scalar(options: int) -> bool:
    """Whether the value is a scalar for every batch."""
    return not options & _SAMPLEWISE and options & 3 != AVERAGES["none"]


def without_validation(options: int) -> int:
    """The ``options`` for an op that must not check for errors of earlier calls."""
    return options & ~VALIDATE


def task_bits(task: str, top_k: int = 1) -> int:
    """The bits of ``options`` that only `accuracy_from_counts` reads."""
    return TASKS[task] << _TASK_SHIFT | _SEVERAL * (top_k > 1)


def _fake_binary(
    preds: Tensor, target: Tensor, threshold: float, options: int, ignore_index: int
) -> Tensor:
    samplewise = bool(options & _SAMPLEWISE)
    check_elements(preds, target, 1, samplewise)
    check_dtypes(preds, target)
    samples = target.shape[0]
    squeezed = not samplewise or samples == 1
    return preds.new_empty(() if squeezed else (samples,), dtype=torch.float32)


def _fake_multiclass(
    preds: Tensor, target: Tensor, num_classes: int, top_k: int, options: int, ignore_index: int
) -> Tensor:
    samplewise = bool(options & _SAMPLEWISE)
    check_classes(num_classes, top_k, options & 3 == AVERAGES["micro"])
    check_dtypes(preds, target)
    if preds.ndim == target.ndim + 1:
        check_class_scores(preds, target, num_classes, samplewise)
    else:
        check_class_labels(preds, target, num_classes, top_k, samplewise, validates(options))
    shape = [target.shape[0]] if samplewise else []
    if options & 3 == AVERAGES["none"]:
        shape.append(num_classes)
    return preds.new_empty(shape, dtype=torch.float32)


def _fake_multiclass_top_k(
    preds: Tensor,
    target: Tensor,
    num_classes: int,
    top_k: Sequence[int],
    options: int,
    ignore_index: int,
) -> Tensor:
    check_several_top_k(preds, target, num_classes, top_k)
    value = _fake_multiclass(preds, target, num_classes, max(top_k), options, ignore_index)
    return value.new_empty((len(top_k), *value.shape))


def _fake_multilabel(
    preds: Tensor,
    target: Tensor,
    num_labels: int,
    threshold: float,
    options: int,
    ignore_index: int,
) -> Tensor:
    samplewise = bool(options & _SAMPLEWISE)
    check_elements(preds, target, 2, samplewise)
    torch._check_value(
        target.shape[1] == num_labels,
        lambda: (
            "Expected both `target.shape[1]` and `preds.shape[1]` to be equal to the number of "
            f"labels but got {target.shape[1]} and expected {num_labels}."
        ),
    )
    check_dtypes(preds, target)
    samples, average = target.shape[0], options & 3
    squeezed = samples == 1 and average != AVERAGES["micro"]
    shape = [samples] if samplewise and not squeezed else []
    if average == AVERAGES["none"]:
        shape.append(num_labels)
    return preds.new_empty(shape, dtype=torch.float32)


_Fake = Callable[..., Tensor]
_Counts = tuple[Tensor, Tensor, Tensor, Tensor]
_NAMES = ("tp", "fp", "tn", "fn", "bad")


def counts_per_state(task: str, arguments: Sequence[Any]) -> int:
    """The number of counts in each of tp, fp, tn and fn, for a batch or for each sample."""
    if task == "binary":
        return 1
    options = arguments[-2]
    if task == "multiclass":
        classes, top_k = arguments[:2]
        micro = options & 3 == AVERAGES["micro"]
        return 1 if micro and top_k == 1 and not options & _SAMPLEWISE else max(classes, 1)
    return int(arguments[0])


def _check_state(preds: Tensor, name: str, state: Tensor, size: int) -> None:
    if state.device != preds.device:
        raise RuntimeError(
            f"Expected `preds` and `{name}` on the same device, but got {preds.device} and "
            f"{state.device}. Move them together with `.to(device)`."
        )
    if state.ndim > 1 or state.numel() != size or state.dtype != torch.int64:
        raise ValueError(
            f"Expected state `{name}` to be an int64 tensor of shape [{size}], but got "
            f"{dtype_name(state.dtype)} of shape {list(state.shape)}. Reset the metric, or make "
            "its states with torch.zeros."
        )


def _fake_forward(task: str, fake: _Fake) -> _Fake:
    def forward(preds: Tensor, target: Tensor, *rest: Any) -> Tensor:
        states, arguments = rest[:5], rest[5:]
        value = fake(preds, target, *arguments)
        if arguments[-2] & _SAMPLEWISE:
            raise ValueError(
                "Expected `multidim_average` to be `global` where counts are added to states."
            )
        classes = counts_per_state(task, arguments)
        for name, state in zip(_NAMES, states, strict=True):
            _check_state(preds, name, state, 1 if name == "bad" else classes)
        return value

    return forward


def _fake_update(task: str, fake: _Fake) -> Callable[..., None]:
    forward = _fake_forward(task, fake)

    def update(*args: Any) -> None:
        forward(*args)

    return update


def _fake_counts(task: str, fake: _Fake) -> Callable[..., _Counts]:
    def counts(preds: Tensor, target: Tensor, bad: Tensor, *arguments: Any) -> _Counts:
        fake(preds, target, *arguments)
        if not arguments[-2] & _SAMPLEWISE:
            raise ValueError(
                "Expected `multidim_average` to be `samplewise` for the counts of samples."
            )
        _check_state(preds, "bad", bad, 1)
        shape = [target.shape[0]]
        if task != "binary":
            shape.append(counts_per_state(task, arguments))
        tp, fp, tn, fn = (preds.new_empty(shape, dtype=torch.int64) for _ in range(4))
        return tp, fp, tn, fn

    return counts


def _check_like_tp(tp: Tensor, counts: Tensor, name: str) -> None:
    if counts.dtype != torch.int64:
        raise ValueError(
            f"Expected `{name}` to be an int64 tensor, but got {dtype_name(counts.dtype)}."
        )
    check_sizes(
        tp.shape,
        counts.shape,
        lambda: (
            f"Expected `tp` and `{name}` to have the same shape, but got {list(tp.shape)} and "
            f"{list(counts.shape)}."
        ),
    )


def _fake_from_counts(
    tp: Tensor, fp: Tensor, tn: Tensor, fn: Tensor, bad: Tensor | None, options: int
) -> Tensor:
    if bad is not None and bad.device != tp.device:
        raise RuntimeError(
            f"Expected `tp` and `bad` on the same device, but got {tp.device} and {bad.device}. "
            "Move them together with `.to(device)`."
        )
    samplewise = bool(options & _SAMPLEWISE)
    binary = options >> _TASK_SHIFT & 3 == TASKS["binary"]
    most_dims = 2 if samplewise and not binary else 1
    if tp.ndim > most_dims or (samplewise and tp.ndim < most_dims):
        raise ValueError(
            f"Expected counts of {most_dims} dimensions, but got shape {list(tp.shape)}."
        )
    if binary and not samplewise and tp.numel() != 1:
        raise ValueError(f"Expected binary counts of one element, but got shape {list(tp.shape)}.")
    for name, counts in zip(_NAMES, (tp, fp, tn, fn), strict=False):
        _check_like_tp(tp, counts, name)
    shape = [tp.shape[0]] if samplewise else []
    if not binary and options & 3 == AVERAGES["none"] and tp.ndim > 0:
        shape.append(tp.shape[-1])
    return tp.new_empty(shape, dtype=torch.float32)


_Op = Callable[..., Any]


def _bind(suffix: str, wrap: Callable[[str, _Fake], _Op]) -> dict[str, _Op]:
    # Counts have no gradient, as in TorchMetrics.
    return {
        task: bind(f"{task}_accuracy{suffix}", wrap(task, fake), ignores_gradient=True)
        for task, fake in _FAKES.items()
    }


_FAKES: dict[str, _Fake] = {
    "binary": _fake_binary,
    "multiclass": _fake_multiclass,
    "multilabel": _fake_multilabel,
}

ACCURACY = _bind("", lambda task, fake: fake)
multiclass_accuracy_top_k = bind(
    "multiclass_accuracy_top_k", _fake_multiclass_top_k, ignores_gradient=True
)
UPDATE = _bind("_update", _fake_update)
FORWARD = _bind("_forward", _fake_forward)
COUNTS = _bind("_counts", _fake_counts)
accuracy_from_counts = bind("accuracy_from_counts", _fake_from_counts, ignores_gradient=True)
