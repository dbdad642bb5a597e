"""Synchronization-free metrics for training on GPUs.

Importing the package is instant and works without a GPU and without torch; names load on first use.
Names and submodules that syncfree does not define resolve to TorchMetrics' objects of that name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from syncfree import _torchmetrics, _torchmetrics_modules
from syncfree._version import __version__ as __version__

if TYPE_CHECKING:
    from syncfree import benchmarking as benchmarking
    from syncfree import classification as classification
    from syncfree import collections as collections
    from syncfree import detector as detector
    from syncfree import distributed as distributed
    from syncfree import errors as errors
    from syncfree import functional as functional
    from syncfree import image as image
    from syncfree import losses as losses
    from syncfree import timing as timing
    from syncfree._deferred import deferred
    from syncfree._error_records import check_errors
    from syncfree._info import info
    from syncfree._on_side_stream import on_side_stream
    from syncfree._patch import patch_torchmetrics
    from syncfree.benchmarking import benchmark
    from syncfree.classification import (
        Accuracy,
        BinaryAccuracy,
        MulticlassAccuracy,
        MultilabelAccuracy,
    )
    from syncfree.collections import MetricCollection
    from syncfree.detector import allow_sync, detect_syncs, no_sync
    from syncfree.image import (
        MultiScaleStructuralSimilarityIndexMeasure,
        PeakSignalNoiseRatio,
        StructuralSimilarityIndexMeasure,
    )
    from syncfree.timing import EventTimer, timed

_MODULES = (
    "benchmarking",
    "classification",
    "collections",
    "detector",
    "distributed",
    "errors",
    "functional",
    "image",
    "losses",
    "timing",
)
_NAMES = {
    "Accuracy": "syncfree.classification",
    "BinaryAccuracy": "syncfree.classification",
    "EventTimer": "syncfree.timing",
    "MetricCollection": "syncfree.collections",
    "MultiScaleStructuralSimilarityIndexMeasure": "syncfree.image",
    "MulticlassAccuracy": "syncfree.classification",
    "MultilabelAccuracy": "syncfree.classification",
    "PeakSignalNoiseRatio": "syncfree.image",
    "StructuralSimilarityIndexMeasure": "syncfree.image",
    "allow_sync": "syncfree.detector",
    "benchmark": "syncfree.benchmarking",
    "check_errors": "syncfree._error_records",
    "deferred": "syncfree._deferred",
    "detect_syncs": "syncfree.detector",
    "info": "syncfree._info",
    "no_sync": "syncfree.detector",
    "on_side_stream": "syncfree._on_side_stream",
    "patch_torchmetrics": "syncfree._patch",
    "timed": "syncfree.timing",
}

# The names of `import *`. Our modules are left out: they would hide the standard `collections`.
__all__ = [
    "Accuracy",
    "BinaryAccuracy",
    "EventTimer",
    "MetricCollection",
    "MultiScaleStructuralSimilarityIndexMeasure",
    "MulticlassAccuracy",
    "MultilabelAccuracy",
    "PeakSignalNoiseRatio",
    "StructuralSimilarityIndexMeasure",
    "allow_sync",
    "benchmark",
    "check_errors",
    "deferred",
    "detect_syncs",
    "functional",
    "info",
    "no_sync",
    "on_side_stream",
    "patch_torchmetrics",
    "timed",
]

_BUILT_ON_TORCHMETRICS = (
    "syncfree._on_side_stream",
    "syncfree.classification",
    "syncfree.collections",
    "syncfree.image",
)

# Removed from the module, so that `import *` asks `__getattr__`, which adds TorchMetrics' names.
_STARRED: list[str] = globals().pop("__all__")
_OWN = sorted({*_STARRED, *_MODULES, "__version__"})
if not _torchmetrics.is_installed():
    # `import *` and `dir` list only what works, since `help` and completion access every name.
    # Access to one of the other names raises an error that says what to install.
    _STARRED, _OWN = (
        [n for n in names if _NAMES.get(n, f"syncfree.{n}") not in _BUILT_ON_TORCHMETRICS]
        for names in (_STARRED, _OWN)
    )

_torchmetrics_modules.install()


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"syncfree.{name}")
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    return _torchmetrics.resolve(__name__, name, _STARRED)


def __dir__() -> list[str]:
    return _torchmetrics.listing(__name__, _OWN)
