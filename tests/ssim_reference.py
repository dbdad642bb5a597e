"""SSIM from its definition: each window's weighted means, variances and covariance in float64."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

# Windows held at once; each is as large as its kernel.
CHUNK = 2_000_000


@dataclass(frozen=True)
class Window:
    """A window as the functions take it, one entry for each spatial axis."""

    gaussian_kernel: bool = True
    sigma: float | tuple[float, ...] = 1.5
    kernel_size: int | tuple[int, ...] = 11

    def __str__(self) -> str:
        if self.gaussian_kernel:
            return f"gaussian-{self.sigma}-{self.kernel_size}"
        return f"uniform-{self.kernel_size}"

    @property
    def options(self) -> dict[str, object]:
        return {
            "gaussian_kernel": self.gaussian_kernel,
            "sigma": self.sigma,
            "kernel_size": self.kernel_size,
        }

    def weights(self, axes: int) -> list[np.ndarray]:
        if not self.gaussian_kernel:
            return [np.full(size, 1 / size) for size in _each(self.kernel_size, axes)]
        weights = []
        for sigma in _each(self.sigma, axes):
            half = int(3.5 * sigma + 0.5)
            bell = np.exp(-0.5 * (np.arange(-half, half + 1) / sigma) ** 2)
            weights.append(bell / bell.sum())
        return weights

    def padding(self, axes: int) -> list[int]:
        """Half the window; along a volume's last axis half of `kernel_size`, as in TorchMetrics."""
        padding = [(len(w) - 1) // 2 for w in self.weights(axes)]
        if axes == 3:
            padding[2] = (_each(self.kernel_size, axes)[2] - 1) // 2
        return padding


def _each(value: float | tuple[float, ...], axes: int) -> list:
    return list(value) if isinstance(value, tuple) else [value] * axes


def _array(images: Tensor) -> np.ndarray:
    return images.detach().cpu().double().numpy()


@dataclass(frozen=True)
class Reference:
    """Maps of one pair of batches; the values are their means."""

    preds: np.ndarray
    target: np.ndarray
    window: Window
    data_range: float
    k1: float = 0.01
    k2: float = 0.03

    @classmethod
    def of(
        cls,
        preds: Tensor,
        target: Tensor,
        window: Window | None = None,
        data_range: float | tuple[float, float] | None = 1.0,
        k1: float = 0.01,
        k2: float = 0.03,
    ) -> Reference:
        a, b = _array(preds), _array(target)
        if isinstance(data_range, tuple):
            a, b = a.clip(*data_range), b.clip(*data_range)
            data_range = data_range[1] - data_range[0]
        elif data_range is None:
            data_range = max(np.ptp(a), np.ptp(b))
        return cls(a, b, window or Window(), float(data_range), k1, k2)

    @cached_property
    def _terms(self) -> tuple[np.ndarray, np.ndarray]:
        """The luminance and the contrast term at each position."""
        axes = self.preds.ndim - 2
        weights = self.window.weights(axes)
        kernel = weights[0]
        for more in weights[1:]:
            kernel = np.multiply.outer(kernel, more)
        edges = [(0, 0), (0, 0), *((p, p) for p in self.window.padding(axes))]
        spatial = tuple(range(2, 2 + axes))
        windows = [
            sliding_window_view(np.pad(x, edges, mode="reflect"), kernel.shape, spatial)
            for x in (self.preds, self.target)
        ]
        shape = windows[0].shape[: 2 + axes]
        luminance, contrast = np.empty(shape), np.empty(shape)
        rows = max(1, CHUNK // (kernel.size * int(np.prod(shape[3:]))))
        for image, channel, begin in np.ndindex(shape[0], shape[1], -(-shape[2] // rows)):
            at = image, channel, slice(begin * rows, (begin + 1) * rows)
            a, b = (w[at].reshape(-1, kernel.size) for w in windows)
            terms = self._terms_of(a, b, kernel.ravel())
            luminance[at], contrast[at] = (t.reshape(luminance[at].shape) for t in terms)
        return luminance, contrast

    def _terms_of(
        self, a: np.ndarray, b: np.ndarray, kernel: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        c1, c2 = (self.k1 * self.data_range) ** 2, (self.k2 * self.data_range) ** 2
        mean_a, mean_b = a @ kernel, b @ kernel
        a, b = a - mean_a[:, None], b - mean_b[:, None]
        variances = (a * a) @ kernel + (b * b) @ kernel
        with np.errstate(divide="ignore", invalid="ignore"):
            return (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1), (
                2 * ((a * b) @ kernel) + c2
            ) / (variances + c2)

    @property
    def map(self) -> np.ndarray:
        return self._terms[0] * self._terms[1]

    @property
    def values(self) -> np.ndarray:
        return self.map.reshape(len(self.preds), -1).mean(axis=1)

    @property
    def contrast(self) -> np.ndarray:
        """The mean of the contrast term away from the mirrored border."""
        cropped = self._terms[1]
        for axis, pad in enumerate(self.window.padding(self.preds.ndim - 2), start=2):
            cropped = cropped.take(range(pad, cropped.shape[axis] - pad), axis)
        if cropped.size == 0:
            return np.full(len(self.preds), np.nan)
        return cropped.reshape(len(self.preds), -1).mean(axis=1)
