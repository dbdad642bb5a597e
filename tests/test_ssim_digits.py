"""Float32 images on which moments of raw pixels lose their digits, against float64."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import skimage.data
import torch
from torch import Tensor

from cases import range_of
from ms_ssim_reference import halved, product
from ssim_reference import Reference, Window
from syncfree.functional.image import (
    multiscale_structural_similarity_index_measure,
    structural_similarity_index_measure,
)


def check(got: Tensor, want: np.ndarray, tolerance: float = 2e-6) -> None:
    assert got.shape == want.shape
    np.testing.assert_allclose(got.double().cpu().numpy(), want, rtol=0, atol=tolerance)


def waves(shape: tuple[int, ...]) -> Tensor:
    y = torch.linspace(0, 9, shape[-2], dtype=torch.float64)[:, None]
    x = torch.linspace(0, 13, shape[-1], dtype=torch.float64)[None]
    return (0.5 + 0.25 * (torch.sin(x) * torch.cos(y) + torch.sin(0.7 * x + y))).expand(shape)


def photograph(name: str) -> Tensor:
    pixels = getattr(skimage.data, name)()[:190, :300]
    return torch.from_numpy(pixels.astype(np.float32))[None, None] / 255


def difficult_pair(name: str) -> tuple[Tensor, Tensor]:
    """Float32 pairs in [0, 1] on which moments of raw pixels lose their digits."""
    shape = (1, 2, 90, 170)
    generator = torch.Generator().manual_seed(7)

    def noise(scale: float) -> Tensor:
        return scale * torch.randn(shape, generator=generator, dtype=torch.float64)

    dark_to_bright = torch.full(shape, 0.02, dtype=torch.float64)
    dark_to_bright[..., 77:] = 0.98
    pairs = {
        "noise": (noise(0.3) + 0.5, noise(0.3) + 0.5),
        "noisy waves": (waves(shape) + noise(0.02), waves(shape)),
        "noisy edge": (dark_to_bright + noise(0.02), dark_to_bright),
        "other brightness": (0.4 * waves(shape) + 0.55, 0.4 * waves(shape) + 0.05),
        "other contrast": (waves(shape), 0.5 * waves(shape) + 0.25),
        "bright and smooth": (0.95 + noise(1e-3), 0.95 + noise(1e-3)),
        "almost white bytes": tuple((254.5 + noise(9).clamp(-1, 1)).round() / 255 for _ in "ab"),
        "flat": (0.6 + noise(0), 0.6 + noise(0) + 1e-7),
    }
    a, b = pairs[name]
    return a.clamp(0, 1).float(), b.clamp(0, 1).float()


PAIRS = [("camera", "coins"), ("coins", "moon"), ("page", "camera"), ("moon", "page")]


@pytest.mark.parametrize(
    ("first", "second", "noise", "times"),
    [
        *((*pair, noise, 1) for pair in PAIRS for noise in (0.0, 0.02)),
        ("page", "camera", 0.0, 5),
    ],
)
@pytest.mark.parametrize("window", [Window(), Window(False, kernel_size=7)], ids=str)
def test_unrelated_photographs(
    window: Window, first: str, second: str, noise: float, times: int, device: str
) -> None:
    """Edges beside flat parts, in different places of the two images; side by side where large."""
    generator = torch.Generator().manual_seed(3)
    preds, target = (
        (x + noise * torch.randn(x.shape, generator=generator)).clamp(0, 1).repeat(1, 1, 1, times)
        for x in (photograph(first), photograph(second))
    )
    for a, b in ((preds, target), (0.5 * preds + 0.5, target)):
        _, full = structural_similarity_index_measure(
            a.to(device), b.to(device), data_range=1.0, return_full_image=True, **window.options
        )
        check(full, Reference.of(a, b, window).map)


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        ("noise", 2e-6),
        ("noisy waves", 2e-6),
        ("noisy edge", 2e-6),
        ("other brightness", 2e-6),
        ("other contrast", 2e-6),
        ("bright and smooth", 1e-6),
        ("almost white bytes", 2e-6),
        ("flat", 1e-6),
    ],
)
def test_keeps_digits_of_difficult_images(name: str, tolerance: float, device: str) -> None:
    preds, target = difficult_pair(name)
    want = Reference.of(preds, target)
    value, full = structural_similarity_index_measure(
        preds.to(device),
        target.to(device),
        data_range=1.0,
        reduction="none",
        return_full_image=True,
    )
    check(full, want.map, tolerance)
    check(value, want.values, 2e-7)
    assert full.abs().max() <= 1


def large_image(name: str) -> Tensor:
    """Of 2^18 pixels and more, in [0, 1]."""
    if name == "bright around dark":
        image = torch.full((1, 1, 512, 640), 0.95)
        image[..., 200:300, :] = 0.02
        return image
    pixels = torch.from_numpy(getattr(skimage.data, name)())
    return (pixels.movedim(-1, 0) if pixels.ndim == 3 else pixels[None])[None] / 255


@pytest.mark.parametrize("window", [Window(), Window(False, kernel_size=7)], ids=str)
@pytest.mark.parametrize("noise", [0.01, 0.05])
@pytest.mark.parametrize(
    ("name", "tolerance"),
    # Where one image is of one level and the other of a few, errors come in a few sizes as well.
    [("camera", 5e-7), ("coffee", 5e-7), ("bright around dark", 3e-6)],
)
def test_mean_of_a_large_image(
    name: str, tolerance: float, noise: float, window: Window, device: str
) -> None:
    """Its windows may lose digits, but not all in the same direction."""
    target = large_image(name)
    generator = torch.Generator().manual_seed(5)
    preds = target + noise * torch.randn(target.shape, generator=generator)
    for x, y in ((preds, target), ((255 * preds).round().clamp(0, 255) / 255, target)):
        value = structural_similarity_index_measure(
            x.to(device), y.to(device), data_range=1.0, reduction="none", **window.options
        )
        check(value, Reference.of(x, y, window).values, tolerance)


@cache
def large_pair(name: str, dtype: torch.dtype) -> tuple[Tensor, Tensor, Reference]:
    target = large_image(name)
    generator = torch.Generator().manual_seed(6)
    preds = target + 0.03 * torch.randn(target.shape, generator=generator)
    preds, target = (
        (x.clamp(0, 1) * range_of(dtype)).round().to(dtype) if dtype == torch.uint8 else x.to(dtype)
        for x in (preds, target)
    )
    return preds, target, Reference.of(preds, target, data_range=range_of(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.uint8], ids=str)
@pytest.mark.parametrize(("name", "tolerance"), [("camera", 5e-7), ("bright around dark", 3e-6)])
def test_other_means_of_a_large_image(
    name: str, tolerance: float, dtype: torch.dtype, device: str
) -> None:
    """Contrast, windows inside the image, two scales: kernels of their own."""
    preds, target, reference = large_pair(name, dtype)
    on_device = preds.to(device), target.to(device)
    options = {"data_range": range_of(dtype), "reduction": "none"}
    if dtype == torch.float16:
        tolerance += 2**-12  # half a step below 1

    value, contrast = structural_similarity_index_measure(
        *on_device, return_contrast_sensitivity=True, **options
    )
    check(value, reference.values, tolerance)
    check(contrast, reference.contrast, tolerance)

    inside = structural_similarity_index_measure(*on_device, preset="wang", **options)
    check(inside, reference.map[..., 5:-5, 5:-5].mean(axis=(1, 2, 3)), tolerance)

    betas = (0.5, 0.5)
    scales = multiscale_structural_similarity_index_measure(*on_device, betas=betas, **options)
    coarse = Reference.of(halved(preds), halved(target), data_range=range_of(dtype))
    check(scales, product(np.stack([reference.contrast, coarse.values]), betas), tolerance)
