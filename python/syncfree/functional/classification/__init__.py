"""Classification metrics as functions under TorchMetrics' names; other names are TorchMetrics'."""

from typing import Any

from syncfree._torchmetrics import listing, resolve
from syncfree.functional.classification.accuracy import (
    accuracy,
    binary_accuracy,
    multiclass_accuracy,
    multilabel_accuracy,
)

__all__ = ["accuracy", "binary_accuracy", "multiclass_accuracy", "multilabel_accuracy"]
# Removed from the module, so that `import *` asks `__getattr__`, which adds TorchMetrics' names.
_OWN: list[str] = globals().pop("__all__")


def __getattr__(name: str) -> Any:
    return resolve(__name__, name, _OWN)


def __dir__() -> list[str]:
    return listing(__name__, _OWN)
