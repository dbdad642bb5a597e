"""Accuracy against scikit-learn and TorchMetrics."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import sklearn.metrics
import torch
import torchmetrics.functional.classification as tm
from torch import Tensor

from accuracy_cases import (
    AVERAGES,
    make_labels,
    mode,
    torchmetrics_counts,
)
from syncfree.functional.classification import (
    accuracy,
    binary_accuracy,
    multiclass_accuracy,
    multilabel_accuracy,
)


def test_matches_scikit_learn(device: str) -> None:
    scores = torch.randn(500, 6, dtype=torch.float64)
    target = torch.randint(0, 6, (500,))
    truth, predicted = target.numpy(), scores.argmax(1).numpy()
    on_device = scores.to(device), target.to(device), 6
    got = multiclass_accuracy(*on_device, average="micro").item()
    assert got == pytest.approx(sklearn.metrics.accuracy_score(truth, predicted), rel=1e-7)
    got = multiclass_accuracy(*on_device).item()
    assert got == pytest.approx(sklearn.metrics.balanced_accuracy_score(truth, predicted), rel=1e-7)
    for k in range(1, 6):
        got = multiclass_accuracy(*on_device, average="micro", top_k=k).item()
        want = sklearn.metrics.top_k_accuracy_score(truth, scores.numpy(), k=k)
        assert got == pytest.approx(want, rel=1e-7)
    probabilities, labels = torch.rand(700, dtype=torch.float64), torch.randint(0, 2, (700,))
    got = binary_accuracy(probabilities.to(device), labels.to(device), 0.4).item()
    assert got == pytest.approx(
        sklearn.metrics.accuracy_score(labels, probabilities > 0.4), rel=1e-7
    )


def agree(ours: Tensor, theirs: Tensor) -> None:
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_max_ulp(ours.cpu().numpy(), theirs.cpu().numpy(), maxulp=2)


@pytest.mark.parametrize("samplewise", [False, True])
@pytest.mark.parametrize("validate", [False, True])
@pytest.mark.parametrize("ignore", [None, -1, 2, 255])
@pytest.mark.parametrize("average", AVERAGES)
def test_matches_torchmetrics(
    average: str | None, ignore: int | None, validate: bool, samplewise: bool, device: str
) -> None:
    """Over the product of all options. Its mean over classes is a float32 sum: two roundings."""
    for shape, top_k in itertools.product(
        [(40, 7), (1, 7), (5, 7, 11), (1, 7, 3), (2, 7, 4, 6)], (1, 3)
    ):
        preds = torch.randn(shape, device=device)
        target = make_labels(shape[:1] + shape[2:], 7, ignore, device)
        options = (7, average, top_k, mode(samplewise), ignore, validate)
        comparable = torchmetrics_counts(top_k, len(shape))
        if comparable and (not samplewise or len(shape) > 2):
            agree(
                multiclass_accuracy(preds, target, *options),
                tm.multiclass_accuracy(preds, target, *options),
            )
        labels = preds.argmax(1)
        if top_k == 1 and (not samplewise or labels.ndim > 1):
            agree(
                multiclass_accuracy(labels, target, *options),
                tm.multiclass_accuracy(labels, target, *options),
            )
        for scores in (preds, preds.sigmoid(), (preds > 0).long()):
            labels = make_labels(shape, 2, None if ignore == 2 else ignore, device)
            binary = (0.4, mode(samplewise), ignore, validate)
            agree(
                binary_accuracy(scores, labels, *binary),
                tm.binary_accuracy(scores, labels, *binary),
            )
            if samplewise and (len(shape) < 3 or (shape[0] == 1 and average == "micro")):
                continue
            multilabel = (7, 0.4, average, *binary[1:])
            agree(
                multilabel_accuracy(scores, labels, *multilabel),
                tm.multilabel_accuracy(scores, labels, *multilabel),
            )


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel", "MultiLabel", "BINARY"])
def test_dispatch_by_task(task: str, device: str) -> None:
    preds = torch.rand(30, 4, device=device)
    binary = task != "multiclass"
    target = make_labels((30, 4) if binary else (30,), 2 if binary else 4, None, device)
    for average in ("micro", "macro"):
        options = {"num_classes": 4, "num_labels": 4, "average": average, "threshold": 0.6}
        agree(accuracy(preds, target, task, **options), tm.accuracy(preds, target, task, **options))
