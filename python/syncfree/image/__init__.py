"""Image metrics as classes, under TorchMetrics' names; every other name is TorchMetrics' own."""

from typing import Any

from syncfree._torchmetrics import listing, require, resolve

require("syncfree.image")
from syncfree.image.ms_ssim import MultiScaleStructuralSimilarityIndexMeasure  # noqa: E402
from syncfree.image.psnr import PeakSignalNoiseRatio  # noqa: E402
from syncfree.image.ssim import StructuralSimilarityIndexMeasure  # noqa: E402

__all__ = [
    "MultiScaleStructuralSimilarityIndexMeasure",
    "PeakSignalNoiseRatio",
    "StructuralSimilarityIndexMeasure",
]
# Removed from the module, so that `import *` asks `__getattr__`, which adds TorchMetrics' names.
_OWN: list[str] = globals().pop("__all__")


def __getattr__(name: str) -> Any:
    return resolve(__name__, name, _OWN)


def __dir__() -> list[str]:
    return listing(__name__, _OWN)
