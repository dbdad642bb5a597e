"""SSIM, MS-SSIM and PSNR in float64 torch operations, for torch's own autograd to differentiate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ssim_reference import Window


@dataclass(frozen=True)
class Similarity:
    """Differentiable results of one pair of batches."""

    map: Tensor
    contrast_map: Tensor  # without the border

    @property
    def values(self) -> Tensor:
        return self.map.flatten(1).mean(1)

    @property
    def contrast(self) -> Tensor:
        return self.contrast_map.flatten(1).mean(1)


def similarity(
    preds: Tensor,
    target: Tensor,
    window: Window | None = None,
    data_range: float | tuple[float, float] = 1.0,
    k1: float = 0.01,
    k2: float = 0.03,
) -> Similarity:
    """Moments of the images less the mean of each plane, so that float64 loses nothing."""
    window = window or Window()
    axes = preds.ndim - 2
    weights = [torch.from_numpy(w).to(preds.device) for w in window.weights(axes)]
    padding = window.padding(axes)
    if isinstance(data_range, tuple):
        preds, target = preds.clamp(*data_range), target.clamp(*data_range)
        data_range = data_range[1] - data_range[0]
    c1, c2 = (k1 * data_range) ** 2, (k2 * data_range) ** 2

    def mean(x: Tensor) -> Tensor:
        x = F.pad(x, [p for pad in reversed(padding) for p in (pad, pad)], mode="reflect")
        for axis, w in enumerate(weights, start=2):
            x = (x.unfold(axis, len(w), 1) * w).sum(-1)
        return x

    level = preds.detach().flatten(2).mean(2).reshape(*preds.shape[:2], *[1] * axes)
    a, b = preds - level, target - level
    mean_a, mean_b = mean(a), mean(b)
    covariance = mean(a * b) - mean_a * mean_b
    variances = mean(a * a) - mean_a**2 + mean(b * b) - mean_b**2
    mean_a, mean_b = mean_a + level, mean_b + level
    luminance = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
    contrast = (2 * covariance + c2) / (variances + c2)
    sizes = zip(padding, contrast.shape[2:], strict=True)
    inner = (..., *(slice(pad, size - pad) for pad, size in sizes))
    return Similarity(luminance * contrast, contrast[inner])


def multiscale(
    preds: Tensor,
    target: Tensor,
    betas: Sequence[float],
    window: Window | None = None,
    data_range: float | tuple[float, float] | None = 1.0,
    normalize: str | None = "relu",
    k1: float = 0.01,
    k2: float = 0.03,
) -> Tensor:
    """One value an image. Without a range it is found at each scale, as a constant."""
    pool = F.avg_pool2d if preds.ndim == 4 else F.avg_pool3d
    value = torch.ones_like(preds[:, 0].flatten(1)[:, 0])
    for scale, beta in enumerate(betas):
        found = data_range
        if found is None:
            found = max((x.max() - x.min()).item() for x in (preds, target))
        results = similarity(preds, target, window, found, k1, k2)
        last = scale == len(betas) - 1
        mean = results.values if last else results.contrast
        if normalize == "relu":
            mean = mean.relu()
        elif normalize == "simple":
            mean = (mean + 1) / 2
        value = value * mean**beta
        if not last:
            preds, target = pool(preds, 2), pool(target, 2)
    return value


def clamped(x: Tensor, bounds: tuple[float, float], dtype: torch.dtype) -> Tensor:
    """Values between the bounds, gradients where ``dtype`` has no number between x and them."""
    low, high = (torch.tensor(bound, dtype=dtype).item() for bound in bounds)
    return x.detach().clamp(*bounds) + (x - x.detach()) * ((x >= low) & (x <= high))


def signal_to_noise(
    preds: Tensor,
    target: Tensor,
    data_range: float | tuple[float, float],
    base: float = 10.0,
    dim: Sequence[int] | None = None,
) -> Tensor:
    """One PSNR for each index of the dimensions that `dim` leaves."""
    if isinstance(data_range, tuple):
        preds, target = preds.clamp(*data_range), target.clamp(*data_range)
        data_range = data_range[1] - data_range[0]
    error = (preds - target) ** 2
    mean = error.mean() if dim is None else error.mean(tuple(dim))
    return 10 / math.log(base) * torch.log(data_range**2 / mean)


Loss = Callable[[Tensor, Tensor], Tensor]


def gradients(loss: Loss, *images: Tensor) -> tuple[Tensor, ...]:
    """Of a scalar, with respect to all images."""
    leaves = [x.detach().clone(memory_format=torch.preserve_format) for x in images]
    return torch.autograd.grad(loss(*(x.requires_grad_() for x in leaves)), leaves)


def true_gradients(loss: Loss, *images: Tensor) -> tuple[Tensor, ...]:
    """The same in float64."""
    return gradients(loss, *(x.double() for x in images))


# Of the largest element of a gradient; half a step of the dtype where that is coarser.
TOLERANCE = {
    torch.float64: 1e-11,
    torch.float32: 3e-6,
    torch.float16: 2**-11 + 3e-6,
    torch.bfloat16: 2**-8 + 3e-6,
}


def check(got: Sequence[Tensor], want: Sequence[Tensor], tolerance: float | None = None) -> None:
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape
        error = (g.double() - w).abs().max() / w.abs().max()
        assert error <= (tolerance or TOLERANCE[g.dtype]), f"{g.dtype}: {error:.2e}"
