"""PSNR of images of which some dimension is empty: one that is kept, or that is summed over."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from syncfree.functional import peak_signal_noise_ratio
from syncfree.image import PeakSignalNoiseRatio
from test_psnr import check, reference

SHAPES = [(0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 0, 5), (2, 3, 4, 0), (0, 3, 0, 5), (0, 0, 0, 0)]
DIMS = [None, (), 0, -1, (1, 2, 3), (0, 2, 3), (0, 1), (2, 3), (0, 1, 2, 3)]
CUTS: dict[str, Callable[[tuple[int, ...]], Tensor]] = {
    "whole": torch.zeros,
    "cut": lambda shape: torch.zeros([n + 2 for n in shape])[tuple(slice(n) for n in shape)],
    "reversed": lambda shape: torch.zeros(shape[::-1]).permute(3, 2, 1, 0),
}


def expected_values(image: Tensor, dim: Any) -> np.ndarray:
    summed = (dim,) if isinstance(dim, int) else dim or (0, 1, 2, 3)
    return reference(image, image, 255.0, dim=summed)


@pytest.fixture(autouse=True)
def no_word_about_means_of_nothing() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Mean of empty slice|invalid value")
        yield


@pytest.fixture(params=SHAPES, ids=str)
def shape(request: pytest.FixtureRequest) -> tuple[int, ...]:
    chosen: tuple[int, ...] = request.param
    return chosen


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("dim", DIMS, ids=str)
def test_values(shape: tuple[int, ...], dim: Any, cut: Any, device: str) -> None:
    image = cut(shape).to(device)
    expected = expected_values(image, dim)
    for dtype in (torch.float32, torch.uint8, torch.int16):
        pair = image.to(dtype), image
        check(peak_signal_noise_ratio(*pair, 255.0, dim=dim, reduction="none"), expected)
        check(peak_signal_noise_ratio(*pair, 255.0, dim=dim), np.asarray(expected.mean()))
        check(peak_signal_noise_ratio(*pair, 255.0, dim=dim, reduction="sum"), expected.sum())


@pytest.mark.parametrize("dim", DIMS, ids=str)
def test_gradients(shape: tuple[int, ...], dim: Any, device: str) -> None:
    images = [torch.zeros(shape, device=device, requires_grad=True) for _ in range(2)]
    peak_signal_noise_ratio(*images, 255.0, dim=dim).backward()
    assert [image.grad.shape for image in images if image.grad is not None] == [shape] * 2


@pytest.mark.parametrize("dim", DIMS, ids=str)
def test_classes(shape: tuple[int, ...], dim: Any, device: str) -> None:
    image = torch.zeros(shape, device=device)
    metric = PeakSignalNoiseRatio(255.0, dim=dim).to(device)
    expected = np.asarray(expected_values(image, dim).mean())
    check(metric(image, image), expected)
    check(metric.compute(), expected)
