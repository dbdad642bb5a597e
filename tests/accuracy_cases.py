"""The inputs that accuracy is tested on: dtypes, shapes, layouts, scores and labels."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torchmetrics
from packaging.version import Version
from torch import Tensor

SCORES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
LABELS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.float32]
AVERAGES = ["micro", "macro", "weighted", "none", None]

# (N, C, ...): rows shorter and longer than a vector, planes with and without a rest, one of each.
SHAPES = [
    (1, 2),
    (7, 3),
    (40, 19),
    (9, 150),
    (3, 700),
    (2, 5, 3),
    (2, 19, 67),
    (1, 4, 1),
    (3, 7, 4, 9),
    (2, 3, 5, 1, 6),
]


_TORCHMETRICS = Version(torchmetrics.__version__)


def torchmetrics_counts(top_k: int, dims: int, *, states: bool = False) -> bool:
    """Whether it does as it does today: 1.6.1 to 1.7.2 raise or are wrong for more than two dims.

    Those before have other states for ``top_k`` above 1, though the same accuracy.
    """
    if top_k == 1:
        return True
    if Version("1.6.1") > _TORCHMETRICS:
        return not states
    return dims == 2 or Version("1.7.3") <= _TORCHMETRICS


def classes_last(x: Tensor) -> Tensor:
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


def every_second(x: Tensor) -> Tensor:
    return x.new_zeros(*x.shape[:-1], 2 * x.shape[-1])[..., ::2].copy_(x)


def window(x: Tensor) -> Tensor:
    return x.new_zeros(x.shape[0] + 2, x.shape[1] + 3, *x.shape[2:])[1:-1, 2:-1].copy_(x)


def reversed_dims(x: Tensor) -> Tensor:
    return x.permute(*reversed(range(x.ndim))).contiguous().permute(*reversed(range(x.ndim)))


LAYOUTS: list[Callable[[Tensor], Tensor]] = [
    Tensor.contiguous,
    classes_last,
    every_second,
    window,
    reversed_dims,
]


def make_scores(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> Tensor:
    """Few distinct values: ties, both zeros, infinities and NaN of both signs among them."""
    values = [-math.inf, -1.5, -0.0, 0.0, 0.5, 1.5, math.inf, math.nan]
    weights = torch.tensor([1, 20, 20, 20, 20, 20, 1, 1.0])
    picked = torch.tensor(values)[torch.multinomial(weights, math.prod(shape), replacement=True)]
    sign = torch.where(picked.isnan() & (torch.rand(picked.shape) < 0.5), -1.0, 1.0)
    return (
        torch.where(picked.isnan(), picked.copysign(sign), picked)
        .reshape(shape)
        .to(dtype)
        .to(device)
    )


def make_labels(shape: tuple[int, ...], classes: int, ignore: int | None, device: str) -> Tensor:
    labels = torch.randint(0, classes, shape)
    if ignore is not None:
        labels = labels.masked_fill(torch.rand(shape) < 0.2, ignore)
    return labels.to(device)


def make_elements(kind: str, dtype: torch.dtype, shape: tuple[int, ...], device: str) -> Tensor:
    if kind == "labels":
        return torch.randint(0, 2, shape).to(dtype).to(device)
    scores = torch.randn(shape).mul(2) if kind == "logits" else torch.rand(shape)
    return scores.masked_fill(torch.rand(shape) < 0.05, 0.5).to(dtype).to(device)


def mode(samplewise: bool) -> str:
    return "samplewise" if samplewise else "global"
