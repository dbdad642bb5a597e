"""What named presets stand for: Wang's program, and formulas that torch can differentiate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.ndimage import correlate
from scipy.signal import convolve2d
from torch import Tensor

from cases import image_pair, range_of
from syncfree.functional import structural_similarity_index_measure

VOLUME = (2, 2, 12, 13, 17)


def ssim(preds: Tensor, target: Tensor, preset: str, **options: object) -> Tensor:
    options = {"data_range": range_of(preds.dtype), "reduction": "none", **options}
    return structural_similarity_index_measure(preds, target, preset=preset, **options)


def pair(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor]:
    """Volumes as stacks of `image_pair`'s slices."""
    if len(shape) == 4:
        return image_pair(shape, dtype, device)
    batch, channels, depth, height, width = shape
    a, b = image_pair((batch, channels * depth, height, width), dtype, device)
    return a.reshape(shape), b.reshape(shape)


def wang(image: np.ndarray, other: np.ndarray, data_range: float) -> float:
    """ssim_index.m of Wang et al. 2004 for one grey image."""
    return float(wang_maps(image, other, data_range)[0].mean())


def wang_maps(
    image: np.ndarray, other: np.ndarray, data_range: float
) -> tuple[np.ndarray, np.ndarray]:
    """Its map, line by line, and that of the contrast term."""
    offsets = np.arange(-5, 6)
    window = np.exp(-(offsets[:, None] ** 2 + offsets**2) / (2 * 1.5**2))
    window /= window.sum()

    def filtered(x: np.ndarray) -> np.ndarray:
        return convolve2d(x, window, mode="valid")

    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    mu1, mu2 = filtered(image), filtered(other)
    sigma1 = filtered(image * image) - mu1**2
    sigma2 = filtered(other * other) - mu2**2
    sigma12 = filtered(image * other) - mu1 * mu2
    ssim_map = ((2 * mu1 * mu2 + c1) * (2 * sigma12 + c2)) / (
        (mu1**2 + mu2**2 + c1) * (sigma1 + sigma2 + c2)
    )
    return ssim_map, (2 * sigma12 + c2) / (sigma1 + sigma2 + c2)


def wang_multiscale(image: np.ndarray, other: np.ndarray, data_range: float, betas: tuple) -> float:
    """msssim.m of Wang et al. 2003, method "product", for one grey image."""
    product = 1.0
    for level, beta in enumerate(betas, start=1):
        ssim_map, contrast_map = wang_maps(image, other, data_range)
        product *= (ssim_map if level == len(betas) else contrast_map).mean() ** beta
        image, other = (
            # imfilter's even window begins at the pixel, scipy's one before it.
            correlate(x, np.full((2, 2), 0.25), mode="reflect", origin=-1)[::2, ::2]
            for x in (image, other)
        )
    return float(product)


@dataclass(frozen=True)
class Formula:
    """One preset in plain float64 operations, for torch's autograd to differentiate."""

    taps: Tensor
    variance_factor: float

    def terms(self, a: Tensor, b: Tensor, k1: float, k2: float) -> tuple[Tensor, Tensor]:
        """The maps of SSIM and of its contrast term, for a range of 1."""
        level = a.detach().mean()
        a, b = a - level, b - level
        mean_a, mean_b = self.mean(a), self.mean(b)
        variances = self.mean(a * a) - mean_a**2 + self.mean(b * b) - mean_b**2
        covariance = self.mean(a * b) - mean_a * mean_b
        mean_a, mean_b = mean_a + level, mean_b + level
        contrast = (2 * self.variance_factor * covariance + k2**2) / (
            self.variance_factor * variances + k2**2
        )
        return (2 * mean_a * mean_b + k1**2) / (mean_a**2 + mean_b**2 + k1**2) * contrast, contrast

    def mean(self, x: Tensor) -> Tensor:
        taps = self.taps.to(x.device)
        for axis in range(2, x.ndim):
            x = (x.unfold(axis, len(taps), 1) * taps).sum(-1)
        return x


def formula(preset: str, axes: int = 2) -> Formula:
    if preset == "skimage":
        n = 7**axes
        return Formula(torch.full((7,), 1 / 7, dtype=torch.float64), n / (n - 1))
    bell = torch.exp(-(torch.arange(-5.0, 6.0, dtype=torch.float64) ** 2) / (2 * 1.5**2))
    return Formula(bell / bell.sum(), 1.0)
