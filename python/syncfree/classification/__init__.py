"""Accuracy as classes, under TorchMetrics' names; every other name is TorchMetrics' own."""

from typing import Any

from syncfree._torchmetrics import listing, require, resolve

require("syncfree.classification")
from syncfree.classification.accuracy import (  # noqa: E402
    Accuracy,
    BinaryAccuracy,
    MulticlassAccuracy,
    MultilabelAccuracy,
)

__all__ = ["Accuracy", "BinaryAccuracy", "MulticlassAccuracy", "MultilabelAccuracy"]
# Removed from the module, so that `import *` asks `__getattr__`, which adds TorchMetrics' names.
_OWN: list[str] = globals().pop("__all__")


def __getattr__(name: str) -> Any:
    return resolve(__name__, name, _OWN)


def __dir__() -> list[str]:
    return listing(__name__, _OWN)
