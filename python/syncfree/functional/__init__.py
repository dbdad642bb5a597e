"""Metrics as functions, under TorchMetrics' names."""

from syncfree.functional.classification import (
    accuracy,
    binary_accuracy,
    multiclass_accuracy,
    multilabel_accuracy,
)
from syncfree.functional.image import (
    ImageQuality,
    image_quality,
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
    "peak_signal_noise_ratio",
    "safe_divide",
    "structural_similarity_index_measure",
]
