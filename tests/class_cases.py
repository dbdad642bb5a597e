"""The metric classes with their options, and streams of batches for them.

What every class must satisfy walks this table, so a new class is a few lines here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torchmetrics.classification as tm
import torchmetrics.image as tm_image
from torch import Tensor
from torchmetrics import Metric

from accuracy_cases import make_labels
from calls import images
from syncfree import classification, image

Batch = tuple[Tensor, Tensor]
SIZES = (5, 7, 5, 3)


@dataclass(frozen=True)
class ClassCase:
    """A class of ours, TorchMetrics' own, their options, and a maker of batches of n samples."""

    ours: type[Metric]
    theirs: type[Metric]
    make: Callable[[int, str], Batch]
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shown = "-".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.ours.__name__}-{shown}"

    def pair(self, device: str, **more: Any) -> tuple[Metric, Metric]:
        """Ours and theirs."""
        first, second = (x(**self.options, **more).to(device) for x in (self.ours, self.theirs))
        return first, second

    def batches(self, device: str, seed: int = 0) -> list[Batch]:
        torch.manual_seed(seed)
        return [self.make(n, device) for n in SIZES]

    @property
    def has_lists(self) -> bool:
        metric = self.ours(**self.options)
        return any(isinstance(state, list) for state in metric.metric_state.values())


def _elements(*shape: int) -> Callable[[int, str], Batch]:
    def make(n: int, device: str) -> Batch:
        target = torch.randint(0, 2, (n, *shape))
        return torch.rand(n, *shape).to(device), target.to(device)

    return make


def _scores(classes: int, *shape: int) -> Callable[[int, str], Batch]:
    def make(n: int, device: str) -> Batch:
        # Distinct scores: which of equal ones torch.topk takes is not told.
        preds = torch.rand(n, classes, *shape).argsort(1).float()
        hit = torch.rand(n, *shape) < 0.5
        target = torch.where(hit, preds.argmax(1), torch.randint(0, classes, (n, *shape)))
        return preds.to(device), target.to(device)

    return make


def _labels(classes: int, *shape: int) -> Callable[[int, str], Batch]:
    def make(n: int, device: str) -> Batch:
        shaped = (n, *shape)
        return make_labels(shaped, classes, None, device), make_labels(shaped, classes, 1, device)

    return make


def _images(n: int, device: str) -> Batch:
    preds, target = images(device, int(torch.randint(0, 2**30, ())))
    repeats = -(-n // preds.shape[0])
    shades = torch.rand(n, 1, 1, 1).to(device) / 2 + 0.5
    return tuple((x.repeat(repeats, 1, 1, 1)[:n] * shades) for x in (preds, target))  # type: ignore[return-value]


def _wide_images(n: int, device: str) -> Batch:
    """TorchMetrics' SSIM is off by more than the tolerance in float32."""
    preds, target = _images(n, device)
    return preds[..., :32, :40].double(), target[..., :32, :40].double()


def _binary(*shape: int, **options: Any) -> ClassCase:
    return ClassCase(classification.BinaryAccuracy, tm.BinaryAccuracy, _elements(*shape), options)


def _multiclass(make: Callable[[int, str], Batch], **options: Any) -> ClassCase:
    return ClassCase(classification.MulticlassAccuracy, tm.MulticlassAccuracy, make, options)


def _multilabel(*shape: int, **options: Any) -> ClassCase:
    return ClassCase(
        classification.MultilabelAccuracy,
        tm.MultilabelAccuracy,
        _elements(*shape),
        {"num_labels": shape[0], **options},
    )


def _psnr(**options: Any) -> ClassCase:
    ours, theirs = image.PeakSignalNoiseRatio, tm_image.PeakSignalNoiseRatio
    return ClassCase(ours, theirs, _images, {"data_range": 1.0, **options})


def _ssim(**options: Any) -> ClassCase:
    name = "StructuralSimilarityIndexMeasure"
    return ClassCase(getattr(image, name), getattr(tm_image, name), _wide_images, options)


def _ms_ssim(**options: Any) -> ClassCase:
    name = "MultiScaleStructuralSimilarityIndexMeasure"
    options = {"data_range": 1.0, "kernel_size": 7, "betas": (0.4, 0.6), **options}
    return ClassCase(getattr(image, name), getattr(tm_image, name), _wide_images, options)


CASES = [
    _binary(6),
    _binary(6, threshold=0.3, ignore_index=0),
    _binary(6, 2, multidim_average="samplewise"),
    _multiclass(_scores(9), num_classes=9),
    _multiclass(_scores(9), num_classes=9, average="micro"),
    _multiclass(_scores(9), average="micro"),
    _multiclass(_scores(9), num_classes=9, average="weighted", top_k=3),
    _multiclass(_labels(9, 4), num_classes=9, average="none", ignore_index=1),
    _multiclass(_scores(9, 4), num_classes=9, multidim_average="samplewise", ignore_index=1),
    _multilabel(4),
    _multilabel(4, average="micro", ignore_index=1),
    _multilabel(4, 3, average="none", multidim_average="samplewise"),
    _psnr(),
    _psnr(data_range=(0.1, 0.8), base=2.0),
    _psnr(dim=(1, 2, 3), reduction="none"),
    _ssim(data_range=1.0),
    _ssim(gaussian_kernel=False, kernel_size=7, reduction="sum"),
    _ssim(data_range=(0.1, 0.9), reduction="none"),
    _ms_ssim(),
    _ms_ssim(reduction=None),
]
