"""The ops behind `binary_accuracy`, `multiclass_accuracy` and `multilabel_accuracy`."""

from __future__ import annotations

import torch
from torch import Tensor

from syncfree._ops.registry import bind

# csrc/accuracy/accuracy.h
AVERAGES: dict[str | None, int] = {"micro": 0, "macro": 1, "weighted": 2, "none": 3, None: 3}


_SAMPLEWISE, _VALIDATE, _HAS_IGNORE_INDEX = 4, 8, 16


def pack_options(
    average: str | None, samplewise: bool, ignore_index: int | None, validate: bool
) -> tuple[int, int]:
    """The ``options`` and ``ignore_index`` of the ops: few scalars, as each costs 0.2 us a call."""
    options = AVERAGES[average] | (_SAMPLEWISE * samplewise) | (_VALIDATE * validate)
    if ignore_index is None:
        return options, 0
    return options | _HAS_IGNORE_INDEX, ignore_index


def _fake_binary(
    preds: Tensor, target: Tensor, threshold: float, options: int, ignore_index: int
) -> Tensor:
    samples = target.shape[0]
    squeezed = not options & _SAMPLEWISE or samples == 1
    return preds.new_empty(() if squeezed else (samples,), dtype=torch.float32)


def _fake_multiclass(
    preds: Tensor, target: Tensor, num_classes: int, top_k: int, options: int, ignore_index: int
) -> Tensor:
    shape = [target.shape[0]] if options & _SAMPLEWISE else []
    if options & 3 == AVERAGES["none"]:
        shape.append(num_classes)
    return preds.new_empty(shape, dtype=torch.float32)


def _fake_multilabel(
    preds: Tensor,
    target: Tensor,
    num_labels: int,
    threshold: float,
    options: int,
    ignore_index: int,
) -> Tensor:
    samples, average = target.shape[0], options & 3
    squeezed = samples == 1 and average != AVERAGES["micro"]
    shape = [samples] if options & _SAMPLEWISE and not squeezed else []
    if average == AVERAGES["none"]:
        shape.append(num_labels)
    return preds.new_empty(shape, dtype=torch.float32)


binary_accuracy = bind("binary_accuracy", _fake_binary)
multiclass_accuracy = bind("multiclass_accuracy", _fake_multiclass)
multilabel_accuracy = bind("multilabel_accuracy", _fake_multilabel)

# Counts have no gradient: scores that require one give a result that does not, as in TorchMetrics.
_library = torch.library.Library("syncfree", "IMPL")
for _name in ("binary_accuracy", "multiclass_accuracy", "multilabel_accuracy"):
    _library.impl(_name, torch.library.fallthrough_kernel, "Autograd")
