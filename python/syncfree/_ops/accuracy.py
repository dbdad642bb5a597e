"""The ops behind `binary_accuracy`, `multiclass_accuracy` and `multilabel_accuracy`."""

from __future__ import annotations

import torch
from torch import Tensor

from syncfree._ops.registry import bind

# csrc/accuracy/accuracy.h
AVERAGES: dict[str | None, int] = {"micro": 0, "macro": 1, "weighted": 2, "none": 3, None: 3}


def _fake_binary(
    preds: Tensor,
    target: Tensor,
    threshold: float,
    samplewise: bool,
    ignore_index: int | None,
    validate: bool,
) -> Tensor:
    samples = target.shape[0]
    return preds.new_empty((samples,) if samplewise and samples != 1 else (), dtype=torch.float32)


def _fake_multiclass(
    preds: Tensor,
    target: Tensor,
    num_classes: int,
    average: int,
    top_k: int,
    samplewise: bool,
    ignore_index: int | None,
    validate: bool,
) -> Tensor:
    shape = [target.shape[0]] if samplewise else []
    if average == AVERAGES["none"]:
        shape.append(num_classes)
    return preds.new_empty(shape, dtype=torch.float32)


def _fake_multilabel(
    preds: Tensor,
    target: Tensor,
    num_labels: int,
    threshold: float,
    average: int,
    samplewise: bool,
    ignore_index: int | None,
    validate: bool,
) -> Tensor:
    samples = target.shape[0]
    squeezed = samples == 1 and average != AVERAGES["micro"]
    shape = [samples] if samplewise and not squeezed else []
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
