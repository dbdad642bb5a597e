"""Collections of several kinds, ours and TorchMetrics', and batches for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchmetrics as tm
import torchmetrics.classification as tc
from torch import Tensor

import syncfree as sf
import syncfree.classification as sc

CLASSES = 5


def scores(device: str, seed: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    preds, target = (
        torch.randn(24, CLASSES, 6, generator=g),
        torch.randint(0, 5, (24, 6), generator=g),
    )
    return preds.softmax(1).to(device), target.to(device)


def probabilities(device: str, seed: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    preds, target = torch.rand(24, CLASSES, generator=g), torch.rand(24, CLASSES, generator=g) < 0.4
    return preds.to(device), target.long().to(device)


def images(device: str, seed: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.rand(2, 3, 8, 8, generator=g).to(device), torch.rand(2, 3, 8, 8, generator=g).to(
        device
    )


Metrics = Callable[[Any, Any], Any]  # of a root module and a module of classification metrics


def multiclass(root: Any, c: Any, **options: Any) -> dict[str, Any]:
    return {
        "f1": c.MulticlassF1Score(CLASSES, **options),
        "accuracy": c.MulticlassAccuracy(CLASSES, **options),
        "precision": c.MulticlassPrecision(CLASSES, average="none", **options),
        "specificity": c.MulticlassSpecificity(CLASSES, average="weighted", **options),
        "micro": c.MulticlassAccuracy(CLASSES, average="micro", **options),
        "micro recall": c.MulticlassRecall(CLASSES, average="micro", **options),
        "other": c.MulticlassAccuracy(CLASSES, ignore_index=1),
    }


def multilabel(root: Any, c: Any) -> list[Any]:
    return [
        c.MultilabelF1Score(CLASSES),
        c.MultilabelAccuracy(CLASSES, average="micro"),
        c.MultilabelHammingDistance(CLASSES, threshold=0.3),
        c.MultilabelAUROC(CLASSES, thresholds=7),
        c.MultilabelAveragePrecision(CLASSES, thresholds=7),
        c.MultilabelROC(CLASSES, thresholds=9),
    ]


def binary(root: Any, c: Any) -> list[Any]:
    return [
        c.BinaryAccuracy(),
        c.BinaryPrecision(),
        c.BinaryConfusionMatrix(),
        c.BinaryCohenKappa(),
        c.BinaryJaccardIndex(),
        c.BinaryAUROC(),
        c.BinaryAveragePrecision(),
    ]


def mixed(root: Any, c: Any) -> dict[str, Any]:
    return {
        "psnr": root.image.PeakSignalNoiseRatio(1.0),
        "per image": root.image.PeakSignalNoiseRatio(1.0, dim=(1, 2, 3), reduction="none"),
        "other range": root.image.PeakSignalNoiseRatio(2.0),
        "mse": root.MeanSquaredError(),
        "mae": root.MeanAbsoluteError(),
    }


def samplewise(root: Any, c: Any) -> dict[str, Any]:
    return multiclass(root, c, multidim_average="samplewise")


CASES: dict[str, tuple[Metrics, Callable[[str, int], tuple[Tensor, Tensor]]]] = {
    "multiclass": (multiclass, scores),
    "samplewise": (samplewise, scores),
    "multilabel": (multilabel, probabilities),
    "binary": (binary, probabilities),
    "images": (mixed, images),
}

every_case = pytest.mark.parametrize("case", CASES)


def make(case: str, device: str, **options: Any) -> tuple[Any, Any]:
    metrics, _ = CASES[case]
    ours = sf.MetricCollection(metrics(sf, sc), **options)
    theirs = tm.MetricCollection(metrics(tm, tc), **options)
    return ours.to(device), theirs.to(device)


def alone(case: str, device: str, **options: Any) -> Any:
    """TorchMetrics' metrics, each by itself: its groups had errors in earlier versions."""
    return make(case, device, compute_groups=False, **options)[1]


def same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert list(ours) == list(theirs)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def groups(collection: Any) -> set[frozenset[str]]:
    return {frozenset(names) for names in collection.compute_groups.values()}
