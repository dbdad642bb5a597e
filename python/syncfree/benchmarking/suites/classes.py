"""The steps of metric classes: syncfree's beside TorchMetrics'."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from syncfree.benchmarking.suites import workload as base
from syncfree.benchmarking.suites.workload import Call, Makers, Workload
from syncfree.errors import MissingExtraError

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
    return lambda device: base.images(shape, torch.float32, device)


SAMPLEWISE = {"multidim_average": "samplewise"}
IMAGES = (16, 3, 256, 256)
CLASSES: list[tuple[str, str, str, dict[str, Any], Callable[[str], Batch]]] = [
    (
        "classification",
        "MulticlassAccuracy",
        "256x1000 macro",
        {"num_classes": 1000},
        _scores(256, 1000),
    ),
    (
        "classification",
        "MulticlassAccuracy",
        "256x1000 micro",
        {"num_classes": 1000, "average": "micro"},
        _scores(256, 1000),
    ),
    (
        "classification",
        "MulticlassAccuracy",
        "8x19x64x64 samplewise",
        {"num_classes": 19, **SAMPLEWISE},
        _scores(8, 19, 64, 64),
    ),
    ("classification", "BinaryAccuracy", "8192", {}, _probabilities(8192)),
    (
        "classification",
        "MultilabelAccuracy",
        "256x80",
        {"num_labels": 80},
        _probabilities(256, 80),
    ),
    (
        "image",
        "PeakSignalNoiseRatio",
        "16x3x256x256",
        {"data_range": 1.0},
        _images(*IMAGES),
    ),
    (
        "image",
        "PeakSignalNoiseRatio",
        "16x3x256x256 per image",
        {"data_range": 1.0, "dim": (1, 2, 3), "reduction": "none"},
        _images(*IMAGES),
    ),
    (
        "image",
        "StructuralSimilarityIndexMeasure",
        "16x3x256x256",
        {"data_range": 1.0},
        _images(*IMAGES),
    ),
    (
        "image",
        "MultiScaleStructuralSimilarityIndexMeasure",
        "16x3x256x256",
        {"data_range": 1.0},
        _images(*IMAGES),
    ),
]


def _step(metric: Any, step: str, batch: Batch) -> Call:
    metric.update(*batch)
    if step == "compute":

        def compute() -> object:
            metric._computed = None  # otherwise it would return the cached value
            return metric.compute()

        return compute
    if step == "reset":
        reset: Call = metric.reset
        return reset
    call = metric if step == "forward" else metric.update
    return lambda: call(*batch)


def _workload(
    title: str,
    device: str,
    step: str,
    package: str,
    options: dict[str, Any],
    make: Callable[[str], Batch],
) -> Workload:
    name, batch = title.split(".", maxsplit=1)[0], make(device)
    contenders: dict[str, Call] = {}
    setups: dict[str, Call] = {}
    for library in ("syncfree", "torchmetrics"):
        kind = getattr(import_module(f"{library}.{package}"), name)
        metric = kind(**options).to(device)
        contenders[library] = _step(metric, step, batch)
        if step in ("update", "forward") and _grows(metric):
            setups[library] = partial(_begin_again, metric, batch)
    read = sum(x.nbytes for x in batch) if step in ("update", "forward") else 0
    return Workload(title, device, read, contenders, is_class=True, setups=setups)


def _grows(metric: Any) -> bool:
    """Whether each step makes the states longer, which can make the next step slower."""
    return any(isinstance(getattr(metric, name), list) for name in metric._defaults)


def _begin_again(metric: Any, batch: Batch) -> None:
    metric.reset()
    metric.update(*batch)


def makers(device: str) -> Makers:
    """The steps of all classes.

    Raises:
        MissingExtraError: TorchMetrics, whose classes syncfree's derive from, is not installed.
    """
    from syncfree.benchmarking.suites.peers import is_there

    if not is_there("torchmetrics"):
        raise MissingExtraError("The suite `classes`", "torchmetrics")
    for package, name, size, options, make in CLASSES:
        for step in STEPS:
            maker = partial(
                _workload, f"{name}.{step} {size}", device, step, package, options, make
            )
            yield f"{name}-{size}-{step}".replace(" ", "-"), maker
