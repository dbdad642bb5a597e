"""Image metrics as functions, under TorchMetrics' names."""

from syncfree.functional.image.psnr import peak_signal_noise_ratio
from syncfree.functional.image.quality import ImageQuality, image_quality
from syncfree.functional.image.ssim import structural_similarity_index_measure

__all__ = [
    "ImageQuality",
    "image_quality",
    "peak_signal_noise_ratio",
    "structural_similarity_index_measure",
]
