"""Multi-scale SSIM from its definition, in float64, on top of that of SSIM."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ssim_reference import Reference, Window

FIVE = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)


def halved(images: Tensor) -> Tensor:
    """Means of 2 x 2 pixels, or 2 x 2 x 2; what is left over at the end is dropped."""
    x = images.detach().cpu().double().numpy()
    for axis in range(2, x.ndim):
        count = x.shape[axis] // 2
        pairs = x.take(range(2 * count), axis)
        shape = [*x.shape[:axis], count, 2, *x.shape[axis + 1 :]]
        x = pairs.reshape(shape).mean(axis + 1)
    return torch.from_numpy(x)


def reference_means(
    preds: Tensor, target: Tensor, scales: int, window: Window | None = None, **options: object
) -> np.ndarray:
    """(scales, B): contrast of all scales but the last, which has SSIM."""
    means = []
    for scale in range(scales):
        ssim = Reference.of(preds, target, window, **options)
        means.append(ssim.values if scale == scales - 1 else ssim.contrast)
        preds, target = halved(preds), halved(target)
    return np.stack(means)


def product(
    means: np.ndarray, betas: tuple[float, ...] = FIVE, normalize: str | None = "relu"
) -> np.ndarray:
    """Each image's value."""
    if normalize == "relu":
        means = np.maximum(means, 0)
    elif normalize == "simple":
        means = (means + 1) / 2
    with np.errstate(invalid="ignore"):
        return np.prod(means ** np.array(betas)[:, None], axis=0)
