"""Classification metrics as functions, under TorchMetrics' names."""

from syncfree.functional.classification.accuracy import (
    accuracy,
    binary_accuracy,
    multiclass_accuracy,
    multilabel_accuracy,
)

__all__ = ["accuracy", "binary_accuracy", "multiclass_accuracy", "multilabel_accuracy"]
