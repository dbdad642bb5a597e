"""What TorchMetrics' accuracies take with ``validate_args=False`` alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torchmetrics.classification as tc
import torchmetrics.functional.classification as tf
from torch import Tensor

import syncfree.classification as sc
import syncfree.functional.classification as sf
from metric_contract import same_states, same_value

AVERAGES = ("micro", "macro", "weighted", "none")


def labels(classes: int, *shape: int) -> Tensor:
    return torch.randint(0, classes, shape)


BATCHES: dict[str, Any] = {
    "binary": lambda n: (torch.rand(n), labels(2, n)),
    "multiclass": lambda n: (labels(3, n), labels(3, n)),
    "multiclass scores": lambda n: (torch.rand(n, 3), labels(3, n)),
    "multilabel": lambda n: (torch.rand(n, 3), labels(2, n, 3)),
}


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("kind", BATCHES)
def test_samples_without_a_dimension(kind: str, average: str, device: str) -> None:
    task, *_ = kind.split()
    options: dict[str, Any] = {"multidim_average": "samplewise"}
    if task != "binary":
        options |= {"average": average, "num_labels" if task == "multilabel" else "num_classes": 3}
    batches = [tuple(x.to(device) for x in BATCHES[kind](n)) for n in (5, 4)]
    ours, theirs = (getattr(library, f"{task}_accuracy") for library in (sf, tf))
    name = f"{task.capitalize()}Accuracy"
    metrics = [getattr(c, name)(validate_args=False, **options).to(device) for c in (sc, tc)]
    for batch in batches:
        same_value(
            ours(*batch, validate_args=False, **options),
            theirs(*batch, validate_args=False, **options),
        )
        same_value(*(metric(*batch) for metric in metrics))
        for metric in metrics:
            metric.update(*batch)
        with pytest.raises(ValueError, match="samplewise"):
            ours(*batch, **options)
    same_states(*metrics)
    same_value(*(metric.compute() for metric in metrics))


@pytest.mark.parametrize("columns", [3, 5, 8])
def test_scores_of_other_classes_in_micro(columns: int, device: str) -> None:
    options: dict[str, Any] = {"num_classes": 4, "average": "micro", "validate_args": False}
    metrics = [c.MulticlassAccuracy(**options).to(device) for c in (sc, tc)]
    for step in range(4):
        shape = (6, columns, 2) if step % 2 else (6, columns)
        preds = torch.rand(shape, device=device)
        target = labels(4, *preds[:, 0].shape).to(device)
        same_value(*(f.multiclass_accuracy(preds, target, **options) for f in (sf, tf)))
        same_value(*(metric(preds, target) for metric in metrics))
        for metric in metrics:
            metric.update(preds, target)
    same_states(*metrics)
    for changed in ({"average": "macro"}, {"validate_args": True}):
        with pytest.raises(ValueError, match="equal to number of classes"):
            sf.multiclass_accuracy(preds, target, **{**options, **changed})


NUMBERS: dict[str, Any] = {
    "numpy": (np.int64(3), np.int32(1), np.float32(0.3)),
    "torch": (torch.tensor(3), torch.tensor(1), torch.tensor(0.3)),
    "torch, one element": (torch.tensor([3]), torch.tensor([1]), torch.tensor([0.3])),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_of_other_libraries(kind: str, device: str) -> None:
    count, index, threshold = NUMBERS[kind]
    of_classes = {"num_classes": count, "ignore_index": index}
    of_labels = {"num_labels": count, "ignore_index": index, "threshold": threshold}
    classes = tuple(labels(3, 20).to(device) for _ in range(2))
    many = torch.rand(9, 3, device=device), labels(2, 9, 3).to(device)
    one = {"threshold": threshold, "ignore_index": index}

    def known(options: dict[str, Any]) -> dict[str, Any]:
        """For TorchMetrics, which compares a tensor on a GPU with single numbers only."""
        if device == "cpu" or kind != "torch, one element":
            return options
        return {name: value.item() for name, value in options.items()}

    for task, batch, options in (
        ("binary", many, one),
        ("multiclass", classes, of_classes),
        ("multilabel", many, of_labels),
    ):
        ours, theirs = (getattr(library, f"{task}_accuracy") for library in (sf, tf))
        name = f"{task.capitalize()}Accuracy"
        same_value(
            ours(*batch, validate_args=False, **options),
            theirs(*batch, validate_args=False, **known(options)),
        )
        metrics = [
            getattr(sc, name)(validate_args=False, **options).to(device),
            getattr(tc, name)(validate_args=False, **known(options)).to(device),
        ]
        same_value(*(metric(*batch) for metric in metrics))
        same_states(*metrics)
        with pytest.raises(ValueError, match="Expected argument"):
            ours(*batch, **options)


def test_a_tensor_is_read_each_time(device: str) -> None:
    threshold = torch.tensor(0.3)
    scores, target = torch.tensor([0.5], device=device), torch.tensor([1], device=device)
    for value in (0.3, 0.7):
        threshold.fill_(value)
        got = sf.binary_accuracy(scores, target, threshold, validate_args=False)
        assert got.item() == (value < 0.5)


@pytest.mark.parametrize(
    "value", ["a", torch.tensor([1, 2]), 3.0, object()], ids=lambda value: type(value).__name__
)
def test_what_is_no_whole_number(value: Any) -> None:
    target = torch.tensor([1])
    with pytest.raises(ValueError, match="`num_classes` to be an integer"):
        sf.multiclass_accuracy(target, target, value, validate_args=False)


def test_numbers_on_a_gpu_would_have_to_be_waited_for(device: str) -> None:
    elsewhere = torch.tensor(0.3, device="meta" if device == "cpu" else device)
    target = torch.tensor([1], device=device)
    with pytest.raises(TypeError, match="`threshold` in host memory"):
        sf.binary_accuracy(target.float(), target, elsewhere, validate_args=False)


def test_compiled(device: str) -> None:
    options: dict[str, Any] = {"validate_args": False, "num_classes": 4, "average": "micro"}
    compiled = torch.compile(sf.multiclass_accuracy, fullgraph=True, backend="aot_eager")
    scores, target = torch.rand(6, 5, device=device), labels(4, 6).to(device)
    for more in ({}, {"multidim_average": "samplewise", "num_classes": 5}):
        wanted = sf.multiclass_accuracy(scores, target, **{**options, **more})
        same_value(compiled(scores, target, **{**options, **more}), wanted)
