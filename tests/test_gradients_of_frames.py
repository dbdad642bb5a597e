"""Gradients of SSIM of whole video frames, for which CUDA has a kernel of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from cases import image_pair
from gradient_reference import check, gradients, signal_to_noise, similarity, true_gradients
from syncfree.functional.image import image_quality, structural_similarity_index_measure
from syncfree.losses import l1_ssim_loss

WEIGHT = 2.0**15  # the largest of halves, whose gradients would underflow


def ssim(preds: Tensor, target: Tensor) -> Tensor:
    return structural_similarity_index_measure(preds, target, data_range=1.0) * WEIGHT


def quality(preds: Tensor, target: Tensor) -> Tensor:
    value = image_quality(preds, target, 1.0)
    return value.ssim + value.mae


def check_truth(images: list[Tensor]) -> None:
    got = gradients(ssim, *images)
    assert [g.dtype for g in got] == [x.dtype for x in images]
    check(got, true_gradients(lambda a, b: similarity(a, b).values.mean() * WEIGHT, *images))


def smooth(height: int, width: int, seed: int) -> Tensor:
    """Values from 0 to 1 that change over a dozen pixels."""
    size = 1, 1, height // 8 + 4, width // 8 + 4
    coarse = torch.rand(size, generator=torch.Generator().manual_seed(seed))
    return F.interpolate(coarse, size=(height, width), mode="bicubic").clamp(0, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_value(dtype: torch.dtype, device: str) -> None:
    check_truth(list(image_pair((1, 1, 720, 1280), dtype, device)))


# The last strip of columns of the wide one is so narrow that a warp has none.
@pytest.mark.parametrize("size", [(721, 1283), (720, 6268)], ids=str)
def test_sizes(size: tuple[int, int], device: str) -> None:
    check_truth(list(image_pair((1, 1, *size), torch.float32, device)))


def test_keeps_digits_where_levels_differ_all_over(device: str) -> None:
    check_truth([smooth(720, 1500, seed).to(device) for seed in (1, 9)])


def test_last_strip_narrower_than_a_window(device: str) -> None:
    """Of a panorama. Its right end has the gradients that it has by itself."""
    images = [x.clone() for x in image_pair((1, 1, 720, 27133), torch.float32, device)]
    for x, level in zip(images, (0.9, 0.7), strict=True):
        x[..., 300:400, -150:-90].mul_(1e-3).add_(level)

    def total(a: Tensor, b: Tensor) -> Tensor:
        return ssim(a, b) * a.shape[-1]

    ends = [x[..., -1300:].contiguous() for x in images]
    got = [g[..., -1250:] for g in gradients(total, *images)]
    check(got, [g[..., -1250:].double() for g in gradients(total, *ends)])


def test_last_strip_with_one_column_beside_its_edge(device: str) -> None:
    """Windows of the strip before it reach the first pixel beyond the image, a mirror image."""
    target = image_pair((1, 1, 192, 3041), torch.float32, device)[0].clone()
    preds = target.clone()
    preds[..., -1] += 0.1
    check_truth([preds, target])


def test_flat_places_in_noise(device: str) -> None:
    """Where a few warps have to go about pivots of their own, and those beside them do not."""
    images = image_pair((1, 1, 720, 1280), torch.float32, device)
    for top, left in ((0, 0), (0, 700), (30, 1260), (200, 180), (333, 420), (500, 0), (700, 1001)):
        for x, level in zip(images, (0.9, 0.7), strict=True):
            place = x[..., top : top + 40, left : left + 60]
            place.mul_(1e-3).add_(level)
    check_truth(list(images))


def test_contrast(device: str) -> None:
    images = image_pair((1, 1, 720, 1280), torch.float32, device)

    def loss(a: Tensor, b: Tensor) -> Tensor:
        value, contrast = structural_similarity_index_measure(
            a, b, data_range=1.0, return_contrast_sensitivity=True
        )
        return (value + contrast.sum()) * WEIGHT

    def truth(a: Tensor, b: Tensor) -> Tensor:
        s = similarity(a, b)
        return (s.values.mean() + s.contrast.sum()) * WEIGHT

    check(gradients(loss, *images), true_gradients(truth, *images))


def check_quality(
    images: list[Tensor], psnr_share: float, ssim_share: float, error_share: float
) -> None:
    """Of two images with weights of their own."""
    weights = torch.tensor([WEIGHT, -WEIGHT / 2], device=images[0].device, dtype=torch.float64)

    def loss(a: Tensor, b: Tensor) -> Tensor:
        psnr, ssim, mae = image_quality(a, b, 1.0, reduction="none")
        return ((psnr_share * psnr + ssim_share * ssim + error_share * mae) * weights).sum()

    def truth(a: Tensor, b: Tensor) -> Tensor:
        psnr = signal_to_noise(a, b, 1.0, dim=(1, 2, 3))
        error = (a - b).abs().mean((1, 2, 3))
        ssim = similarity(a, b).values
        return ((psnr_share * psnr + ssim_share * ssim + error_share * error) * weights).sum()

    check(gradients(loss, *images), true_gradients(truth, *images))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_errors_beside_the_value(dtype: torch.dtype, device: str) -> None:
    """Where the images are equal the absolute error has no slope."""
    images = list(image_pair((2, 2, 721, 1283), dtype, device))
    images[1][..., 200:300, :] = images[0][..., 200:300, :]
    check_quality(images, 0.1, 0.3, 1.0)


@pytest.mark.parametrize("shares", [(1.0, 0.0, 0.0), (0.0, 0.0, 1.0)], ids=["psnr", "mae"])
def test_one_error_alone(shares: tuple[float, float, float], device: str) -> None:
    check_quality(list(image_pair((2, 1, 720, 1280), torch.float32, device)), *shares)


def test_errors_for_one_image_alone(device: str) -> None:
    a, b = image_pair((1, 3, 720, 1280), torch.float32, device)
    (got,) = gradients(lambda x: quality(x, b) * WEIGHT, a)
    assert torch.equal(got, gradients(lambda x, y: quality(x, y) * WEIGHT, a, b)[0])


def test_errors_where_levels_differ_all_over(device: str) -> None:
    images = [smooth(720, 1500, seed).to(device) for seed in (1, 9)]

    def truth(a: Tensor, b: Tensor) -> Tensor:
        return ((a - b).abs().mean() + similarity(a, b).values.mean()) * WEIGHT

    got = gradients(lambda a, b: quality(a, b) * WEIGHT, *images)
    check(got, true_gradients(truth, *images))


def test_neither_batch_nor_layout_changes_a_bit(device: str) -> None:
    a, b = image_pair((2, 3, 720, 1280), torch.float32, device)

    def total(x: Tensor, y: Tensor) -> Tensor:
        options = {"data_range": 1.0, "reduction": "sum"}
        return structural_similarity_index_measure(x, y, **options) * WEIGHT

    together = gradients(total, a, b)
    for i in range(2):
        alone = gradients(total, *(x[i : i + 1] for x in (a, b)))
        assert all(torch.equal(t[i], s[0]) for t, s in zip(together, alone, strict=True))
    last = gradients(total, *(x.contiguous(memory_format=torch.channels_last) for x in (a, b)))
    assert all(torch.equal(g, t) for g, t in zip(last, together, strict=True))

    def with_errors(x: Tensor, y: Tensor) -> Tensor:
        quality = image_quality(x, y, 1.0, reduction="none")
        return (quality.ssim + quality.mae).sum() * WEIGHT

    together = gradients(with_errors, a, b)
    for i in range(2):
        alone = gradients(with_errors, *(x[i : i + 1] for x in (a, b)))
        assert all(torch.equal(t[i], s[0]) for t, s in zip(together, alone, strict=True))
    last = gradients(
        with_errors, *(x.contiguous(memory_format=torch.channels_last) for x in (a, b))
    )
    assert all(torch.equal(g, t) for g, t in zip(last, together, strict=True))


# The last finds its value in the same pass.
@pytest.mark.parametrize("loss", [ssim, quality, l1_ssim_loss], ids=lambda loss: loss.__name__)
def test_equal_frames_have_none(loss: Callable[[Tensor, Tensor], Tensor], device: str) -> None:
    a, _ = image_pair((1, 1, 720, 1280), torch.float32, device)
    assert all((g == 0).all() for g in gradients(loss, a, a))


def test_a_bad_pixel_spoils_its_surroundings_only(device: str) -> None:
    images = image_pair((1, 1, 720, 1280), torch.float32, device)
    clean = gradients(ssim, *images)
    images[0][0, 0, 300, 427] = torch.nan  # near the end of a strip of columns
    near = torch.zeros(720, 1280, dtype=torch.bool, device=device)
    near[290:311, 417:438] = True
    for g, c in zip(gradients(ssim, *images), clean, strict=True):
        assert g[0, 0][near].isnan().all()
        check([g[0, 0][~near]], [c[0, 0][~near].double()], 1e-4)
