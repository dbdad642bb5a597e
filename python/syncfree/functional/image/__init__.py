"""Image metrics as functions, under TorchMetrics' names; every other name is TorchMetrics' own."""

from typing import Any

from syncfree._torchmetrics import listing, resolve
from syncfree.functional.image.ms_ssim import multiscale_structural_similarity_index_measure
from syncfree.functional.image.psnr import peak_signal_noise_ratio
from syncfree.functional.image.quality import ImageQuality, image_quality
from syncfree.functional.image.ssim import structural_similarity_index_measure

__all__ = [
    "ImageQuality",
    "image_quality",
    "multiscale_structural_similarity_index_measure",
    "peak_signal_noise_ratio",
    "structural_similarity_index_measure",
]
# Removed from the module, so that `import *` asks `__getattr__`, which adds TorchMetrics' names.
_OWN: list[str] = globals().pop("__all__")


def __getattr__(name: str) -> Any:
    return resolve(__name__, name, _OWN)


def __dir__() -> list[str]:
    return listing(__name__, _OWN)
