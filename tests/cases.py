"""The image pairs and layouts that every image metric is tested, captured and benchmarked on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

FLOATING = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
DTYPES = [*FLOATING, torch.uint8]

# (B, C, H, W): smallest that an 11-tap window fits, odd, tall, wide, one row of strips and several.
SHAPES = [
    (1, 1, 6, 6),
    (2, 3, 16, 16),
    (1, 3, 33, 47),
    (3, 1, 131, 7),
    (1, 2, 7, 300),
    (2, 3, 64, 128),
    (1, 1, 97, 259),
]

# Columns with which two channels of 40 rows have the 2^18 pixels from which on CUDA takes an image
# in strips, not in patches.
LONG = 3500

# More such strips than a GPU has warps for: some are walked down whole, and the rest in pieces. Of
# two units each (uniform windows) or three.
CROWD = (4, 600, 23, 19)


@dataclass(frozen=True)
class Layout:
    """A way to hold the same values in memory."""

    name: str
    apply: Callable[[Tensor], Tensor]

    def __str__(self) -> str:
        return self.name


def _sliced(x: Tensor) -> Tensor:
    """A view into a larger tensor: pitched rows, an odd start address."""
    big = x.new_zeros(*x.shape[:-2], x.shape[-2] + 3, x.shape[-1] + 5)
    view = big[..., 2:-1, 3:-2]
    return view.copy_(x)


def _strided(x: Tensor) -> Tensor:
    big = x.new_zeros(*x.shape[:-1], 2 * x.shape[-1])
    return big[..., ::2].copy_(x)


LAYOUTS = [
    Layout("contiguous", lambda x: x.contiguous()),
    Layout("channels_last", lambda x: x.contiguous(memory_format=torch.channels_last)),
    Layout("sliced", _sliced),
    Layout("strided", _strided),
    Layout("transposed", lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2)),
]


def image_pair(
    shape: tuple[int, ...], dtype: torch.dtype, device: str, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """A structured image and a noisy copy, in [0, 1] or, for uint8, in 0...255."""
    generator = torch.Generator().manual_seed(seed)
    height, width = shape[-2:]
    y = torch.arange(height, dtype=torch.float64).reshape(-1, 1) / max(height, 2)
    x = torch.arange(width, dtype=torch.float64).reshape(1, -1) / max(width, 2)
    base = 0.5 + 0.25 * torch.sin(9 * x + 4 * y) + 0.15 * torch.cos(21 * y * (x + 0.3))
    detail = 0.1 * torch.rand(shape, generator=generator, dtype=torch.float64)
    clean = (base + detail - 0.05).clamp(0, 1)
    noise = 0.1 * torch.randn(shape, generator=generator, dtype=torch.float64)
    noisy = (clean + noise).clamp(0, 1)
    if dtype == torch.uint8:
        return (noisy * 255).round().to(dtype).to(device), (clean * 255).round().to(dtype).to(
            device
        )
    return noisy.to(dtype).to(device), clean.to(dtype).to(device)


def range_of(dtype: torch.dtype) -> float:
    """The data range of `image_pair`'s values."""
    return 255.0 if dtype == torch.uint8 else 1.0
