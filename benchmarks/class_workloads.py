"""The steps of metric classes, ours beside TorchMetrics'."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torchmetrics.classification
import torchmetrics.image
from torch import Tensor
from torchmetrics import Metric

import syncfree.classification
import syncfree.image
from workloads import Workload

Batch = tuple[Tensor, Tensor]
STEPS = ("update", "forward", "compute", "reset")


def _scores(*shape: int) -> Callable[[str], Batch]:
    def make(device: str) -> Batch:
        target = torch.randint(0, shape[1], (shape[0], *shape[2:]), device=device)
        return torch.randn(shape, device=device), target

    return make


def _probabilities(*shape: int) -> Callable[[str], Batch]:
    def make(device: str) -> Batch:
        return torch.rand(shape, device=device), torch.randint(0, 2, shape, device=device)

    return make


def _images(*shape: int) -> Callable[[str], Batch]:
    def make(device: str) -> Batch:
        x = torch.rand(shape, device=device)
        return x, (x + 0.05 * torch.randn(shape, device=device)).clamp(0, 1)

    return make


SAMPLEWISE = {"multidim_average": "samplewise"}
CLASSES: list[tuple[str, str, dict[str, Any], Callable[[str], Batch]]] = [
    ("MulticlassAccuracy", "256x1000 macro", {"num_classes": 1000}, _scores(256, 1000)),
    (
        "MulticlassAccuracy",
        "256x1000 micro",
        {"num_classes": 1000, "average": "micro"},
        _scores(256, 1000),
    ),
    (
        "MulticlassAccuracy",
        "8x19x64x64 samplewise",
        {"num_classes": 19, **SAMPLEWISE},
        _scores(8, 19, 64, 64),
    ),
    ("BinaryAccuracy", "8192", {}, _probabilities(8192)),
    ("MultilabelAccuracy", "256x80", {"num_labels": 80}, _probabilities(256, 80)),
    ("PeakSignalNoiseRatio", "16x3x256x256", {"data_range": 1.0}, _images(16, 3, 256, 256)),
    (
        "PeakSignalNoiseRatio",
        "16x3x256x256 per image",
        {"data_range": 1.0, "dim": (1, 2, 3), "reduction": "none"},
        _images(16, 3, 256, 256),
    ),
    (
        "StructuralSimilarityIndexMeasure",
        "16x3x256x256",
        {"data_range": 1.0},
        _images(16, 3, 256, 256),
    ),
    (
        "MultiScaleStructuralSimilarityIndexMeasure",
        "16x3x256x256",
        {"data_range": 1.0},
        _images(16, 3, 256, 256),
    ),
]


def _step(metric: Metric, step: str, batch: Batch) -> Callable[[], object]:
    metric.update(*batch)
    if step == "compute":

        def compute() -> object:
            metric._computed = None  # or it would give the value from before
            return metric.compute()

        return compute
    if step == "reset":
        return metric.reset
    call = metric if step == "forward" else metric.update
    return lambda: call(*batch)


def _workload(
    title: str,
    device: str,
    step: str,
    options: dict[str, Any],
    make: Callable[[str], Batch],
) -> Workload:
    name, batch = title.split(".", maxsplit=1)[0], make(device)
    package = "image" if hasattr(torchmetrics.image, name) else "classification"
    contenders = {}
    for library in (syncfree, torchmetrics):
        metric = getattr(getattr(library, package), name)(**options).to(device)
        contenders[library.__name__] = _step(metric, step, batch)
    read = sum(x.nbytes for x in batch) if step in ("update", "forward") else 0
    return Workload(title, device, read, contenders, is_class=True)


def class_workloads(device: str) -> Iterator[tuple[str, Callable[[], Workload]]]:
    """Names and makers of the steps of all classes."""
    for name, size, options, make in CLASSES:
        for step in STEPS:
            maker = partial(_workload, f"{name}.{step} {size}", device, step, options, make)
            yield f"{name}-{size}-{step}".replace(" ", "-"), maker
