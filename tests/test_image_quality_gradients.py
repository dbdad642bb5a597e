"""Gradients of `image_quality` against autograd of its definition in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cases import image_pair
from gradient_reference import check, gradients, signal_to_noise, similarity, true_gradients
from syncfree.functional.image import image_quality

FLOATING = [torch.float64, torch.float32]


@pytest.mark.parametrize(
    "options", [{}, {"reduction": "none"}, {"data_range": (0.1, 0.9)}], ids=str
)
@pytest.mark.parametrize("dtype", FLOATING[:2], ids=str)
def test_image_quality(options: dict[str, object], dtype: torch.dtype, device: str) -> None:
    images = image_pair((3, 2, 20, 66), dtype, device)
    data_range = options.get("data_range", 1.0)
    each = options.get("reduction") == "none"
    weights = torch.tensor([1.0, -2.0, 0.5] if each else [1.0], device=device, dtype=torch.float64)

    def loss(a: Tensor, b: Tensor) -> Tensor:
        quality = image_quality(a, b, **{"data_range": 1.0, **options})
        return ((0.1 * quality.psnr + quality.ssim + 3 * quality.mae) * weights).sum()

    def truth(a: Tensor, b: Tensor) -> Tensor:
        psnr = signal_to_noise(a, b, data_range, dim=(1, 2, 3) if each else None)
        ssim_values = similarity(a, b, data_range=data_range).values
        if isinstance(data_range, tuple):
            a, b = a.clamp(*data_range), b.clamp(*data_range)
        error = (a - b).abs().mean((1, 2, 3))
        if not each:
            ssim_values, error = ssim_values.mean(), error.mean()
        return ((0.1 * psnr + ssim_values + 3 * error) * weights).sum()

    check(gradients(loss, *images), true_gradients(truth, *images))


@pytest.mark.parametrize("field", ["psnr", "ssim", "mae"])
def test_image_quality_of_one_result(field: str, device: str) -> None:
    images = image_pair((2, 1, 20, 30), torch.float64, device)
    truth = {
        "psnr": lambda a, b: signal_to_noise(a, b, 1.0),
        "ssim": lambda a, b: similarity(a, b).values.mean(),
        "mae": lambda a, b: (a - b).abs().mean(),
    }[field]
    got = gradients(lambda a, b: getattr(image_quality(a, b, 1.0), field), *images)
    check(got, true_gradients(truth, *images))


def test_image_quality_of_equal_images(device: str) -> None:
    a, _ = image_pair((1, 1, 20, 30), torch.float32, device)
    for gradient in gradients(lambda x, y: sum(image_quality(x, y, 1.0)), a, a):
        assert (gradient == 0).all()


def test_psnr_of_a_bad_pixel_spoils_all_gradients(device: str) -> None:
    """As that of PSNR alone: zeros would pass a guard against NaN."""
    images = image_pair((1, 1, 20, 30), torch.float32, device)
    images[1][0, 0, 3, 4] = torch.nan
    for gradient in gradients(lambda x, y: image_quality(x, y, 1.0).psnr, *images):
        assert gradient.isnan().all()
