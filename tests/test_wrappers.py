"""Our metrics inside TorchMetrics' wrappers, beside TorchMetrics' metrics in the same place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchmetrics as tm
import torchmetrics.classification as tc
from syncfree.wrappers import (
    BootStrapper,
    ClasswiseWrapper,
    FeatureShare,
    MetricTracker,
    MinMaxMetric,
    MultioutputWrapper,
    MultitaskWrapper,
    Running,
)
from torch import Tensor

import syncfree as sf
import syncfree.classification as sc

CLASSES = 4


def labels(device: str, seed: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    preds, target = (
        torch.rand(32, CLASSES, generator=g),
        torch.randint(0, CLASSES, (32,), generator=g),
    )
    return preds.to(device), target.to(device)


def images(device: str, seed: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    preds, target = torch.rand(2, 4, 16, 16, generator=g).to(device)
    return preds, target


def accuracy(c: Any, **options: Any) -> Any:
    return c.MulticlassAccuracy(CLASSES, **options)


def psnr(root: Any) -> Any:
    return root.image.PeakSignalNoiseRatio(1.0)


Wrapped = Callable[[Any, Any], Any]
WRAPPERS: dict[str, tuple[Wrapped, Callable[[str, int], tuple[Tensor, Tensor]]]] = {
    "classwise": (
        lambda root, c: ClasswiseWrapper(accuracy(c, average=None), labels=list("abcd")),
        labels,
    ),
    "min-max": (lambda root, c: MinMaxMetric(accuracy(c)), labels),
    "min-max psnr": (lambda root, c: MinMaxMetric(psnr(root)), images),
    "running": (lambda root, c: Running(accuracy(c), window=2), labels),
    "running psnr": (lambda root, c: Running(psnr(root), window=3), images),
    "outputs": (
        lambda root, c: MultioutputWrapper(psnr(root), num_outputs=4, output_dim=0),
        images,
    ),
    "composition": (lambda root, c: 1 - accuracy(c) * 2, labels),
    "of two": (lambda root, c: accuracy(c) + accuracy(c, average="micro"), labels),
    "collection of wrappers": (
        lambda root, c: root.MetricCollection(
            {
                "range": MinMaxMetric(accuracy(c)),
                "f1": c.MulticlassF1Score(CLASSES),
                "own": accuracy(c),
            }
        ),
        labels,
    ),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_same_values(name: str, device: str) -> None:
    wrap, inputs = WRAPPERS[name]
    ours, theirs = wrap(sf, sc).to(device), wrap(tm, tc).to(device)
    for _ in range(2):
        for seed in range(4):
            batch = inputs(device, seed)
            if seed % 2:
                torch.testing.assert_close(ours(*batch), theirs(*batch))
            else:
                ours.update(*batch)
                theirs.update(*batch)
            if name == "running psnr":  # theirs is NaN: a mean of ranges over no updates
                assert ours.compute().isfinite()
            else:
                torch.testing.assert_close(ours.compute(), theirs.compute())
        ours.reset()
        theirs.reset()


@pytest.mark.parametrize("strategy", ["poisson", "multinomial"])
def test_bootstrap(strategy: str, device: str) -> None:
    results = []
    for c in (sc, tc):
        torch.manual_seed(0)
        wrapper = BootStrapper(
            accuracy(c), num_bootstraps=5, raw=True, sampling_strategy=strategy
        ).to(device)
        for seed in range(3):
            wrapper.update(*labels(device, seed))
        results.append(wrapper.compute())
    torch.testing.assert_close(*results)
    assert results[0]["std"] > 0


@pytest.mark.parametrize("collection", [False, True])
def test_tracker(collection: bool, device: str) -> None:
    results = []
    for root, c in ((sf, sc), (tm, tc)):
        metric: Any = accuracy(c)
        if collection:
            metric = root.MetricCollection([accuracy(c), c.MulticlassF1Score(CLASSES)])
        tracker = MetricTracker(metric, maximize=True).to(device)
        for epoch in range(3):
            tracker.increment()
            for seed in range(2):
                tracker(*labels(device, 2 * epoch + seed))
            tracker.compute()
        results.append((tracker.compute_all(), tracker.best_metric(return_step=True)))
    torch.testing.assert_close(*results)


def test_tasks(device: str) -> None:
    def tasks(root: Any, c: Any) -> Any:
        both = root.MetricCollection([accuracy(c), c.MulticlassF1Score(CLASSES)])
        return MultitaskWrapper({"labels": both, "images": psnr(root)}).to(device)

    ours, theirs = tasks(sf, sc), tasks(tm, tc)
    for seed in range(3):
        parts = {"labels": labels(device, seed), "images": images(device, seed)}
        preds, target = ({k: v[i] for k, v in parts.items()} for i in (0, 1))
        torch.testing.assert_close(ours(preds, target), theirs(preds, target))
        ours.update(preds, target)
        theirs.update(preds, target)
    torch.testing.assert_close(ours.compute(), theirs.compute())


def test_names_are_torchmetrics_own() -> None:
    for wrapper in (BootStrapper, ClasswiseWrapper, FeatureShare, MetricTracker, Running):
        assert getattr(tm.wrappers, wrapper.__name__) is wrapper
