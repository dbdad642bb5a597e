"""Metrics as functions, under TorchMetrics' names; every other name is TorchMetrics' own."""

from typing import Any

from syncfree._torchmetrics import listing, resolve
from syncfree.functional.classification import (
    accuracy,
    binary_accuracy,
    multiclass_accuracy,
    multilabel_accuracy,
)
from syncfree.functional.image import (
    ImageQuality,
    image_quality,
    multiscale_structural_similarity_index_measure,
    peak_signal_noise_ratio,
    structural_similarity_index_measure,
)
from syncfree.functional.safe_divide import safe_divide

__all__ = [
    "ImageQuality",
    "accuracy",
    "binary_accuracy",
    "image_quality",
    "multiclass_accuracy",
    "multilabel_accuracy",
    "multiscale_structural_similarity_index_measure",
    "peak_signal_noise_ratio",
    "safe_divide",
    "structural_similarity_index_measure",
]
# Removed from the module, so that `import *` asks `__getattr__`, which adds TorchMetrics' names.
_OWN: list[str] = globals().pop("__all__")


def __getattr__(name: str) -> Any:
    return resolve(__name__, name, _OWN)


def __dir__() -> list[str]:
    return listing(__name__, _OWN)
