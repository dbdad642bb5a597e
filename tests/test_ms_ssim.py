"""Multi-scale SSIM against its definition in float64, TorchMetrics and pytorch-msssim."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import pytorch_msssim
import torch
import torch.nn.functional as F
import torchmetrics.functional.image as tm
from torch import Tensor

from cases import DTYPES, FLOATING, LAYOUTS, Layout, image_pair, range_of
from ms_ssim_reference import FIVE, product, reference_means
from requested_memory import most_requested, requested
from ssim_reference import Window
from syncfree.functional.image import (
    multiscale_structural_similarity_index_measure,
    structural_similarity_index_measure,
)

TOLERANCE = {torch.float64: 1e-11, torch.float32: 5e-7}

TWO, THREE = (0.4, 0.6), (0.2, 0.3, 0.5)
SEVEN = (0.1, 0.1, 0.2, 0.2, 0.2, 0.1, 0.1)

# The smallest for their number of scales, odd at several scales, tall, wide, one scale alone, and
# more scales than are pooled at once.
CASES = [
    ((1, 1, 176, 176), FIVE),
    ((2, 3, 199, 181), FIVE),
    ((1, 1, 176, 523), FIVE),
    ((1, 2, 12, 12), TWO),
    ((3, 1, 131, 13), TWO),
    ((2, 2, 49, 260), THREE),
    ((2, 3, 33, 47), (1.5,)),
    ((1, 1, 397, 403), SEVEN),
]

every_case = pytest.mark.parametrize(
    ("shape", "betas"), CASES, ids=["x".join(map(str, shape)) for shape, _ in CASES]
)


def values(preds: Tensor, target: Tensor, **options: object) -> Tensor:
    return multiscale_structural_similarity_index_measure(
        preds, target, **{"reduction": "none", "data_range": 1.0, **options}
    )


def check(got: Tensor, want: np.ndarray) -> None:
    assert got.shape == want.shape
    np.testing.assert_allclose(got.double().cpu().numpy(), want, rtol=0, atol=TOLERANCE[got.dtype])


def result_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


@cache
def means_of_pair(
    shape: tuple[int, ...], dtype: torch.dtype, scales: int, window: Window | None = None
) -> np.ndarray:
    pair = image_pair(shape, dtype, "cpu")
    return reference_means(*pair, scales, window, data_range=range_of(dtype))


@every_case
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_matches_float64(
    shape: tuple[int, ...],
    betas: tuple[float, ...],
    dtype: torch.dtype,
    layout: Layout,
    device: str,
) -> None:
    preds, target = image_pair(shape, dtype, device)
    got = values(layout.apply(preds), target, data_range=range_of(dtype), betas=betas)
    assert got.dtype == result_dtype(dtype)
    assert got.device.type == device
    check(got, product(means_of_pair(shape, dtype, len(betas)), betas))


WINDOWS = [
    *(Window(sigma=sigma, kernel_size=5) for sigma in (0.1, 0.5, 1.4, (0.5, 1.5))),
    *(Window(False, kernel_size=size) for size in (1, 7, (5, 9))),
    Window(sigma=2.0),
]


@pytest.mark.parametrize("normalize", ["relu", "simple", None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_windows(window: Window, dtype: torch.dtype, normalize: str | None, device: str) -> None:
    shape = (2, 2, 61, 78)
    got = values(
        *image_pair(shape, dtype, device), betas=THREE, normalize=normalize, **window.options
    )
    check(got, product(means_of_pair(shape, dtype, 3, window), THREE, normalize))


VOLUME_WINDOWS = [
    Window(sigma=0.8, kernel_size=5),
    Window(sigma=0.5, kernel_size=7),  # the last axis is padded by 3 under a window of 5 taps
    Window(sigma=(0.5, 1.0, 0.8), kernel_size=(3, 5, 3)),  # and here by 1 under a window of 7
    Window(False, kernel_size=(3, 5, 7)),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.uint8], ids=str)
@pytest.mark.parametrize("window", VOLUME_WINDOWS, ids=str)
def test_volumes(window: Window, dtype: torch.dtype, device: str) -> None:
    preds, target = (x.reshape(2, 1, 17, 29, 30) for x in image_pair((2, 17, 29, 30), dtype, "cpu"))
    options = {"betas": THREE, "data_range": range_of(dtype), **window.options}
    last = preds.to(device).contiguous(memory_format=torch.channels_last_3d)
    got = values(last, target.to(device), **options)
    means = reference_means(preds, target, 3, window, data_range=range_of(dtype))
    check(got, product(means, THREE))
    theirs = tm.multiscale_structural_similarity_index_measure(
        preds.double(), target.double(), reduction="none", **options
    )
    np.testing.assert_allclose(got.cpu(), theirs, rtol=0, atol=5e-7)


@pytest.mark.parametrize("reduction", ["elementwise_mean", "sum", "none", None])
@pytest.mark.parametrize("window", [Window(), Window(False, kernel_size=7)], ids=str)
@pytest.mark.parametrize("data_range", [1.0, (0.1, 0.8), None], ids=str)
@pytest.mark.parametrize("normalize", ["relu", "simple", None])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_same_answers_as_torchmetrics(
    reduction: str | None,
    window: Window,
    data_range: object,
    normalize: str | None,
    dtype: torch.dtype,
    device: str,
) -> None:
    """Its betas are rounded to float32 whatever the images."""
    pair = image_pair((3, 2, 45, 52), dtype, device)
    options = {
        **window.options,
        "reduction": reduction,
        "data_range": data_range,
        "normalize": normalize,
        "betas": THREE,
        "k1": 0.02,
        "k2": 0.05,
    }
    got = multiscale_structural_similarity_index_measure(*pair, **options)
    theirs = tm.multiscale_structural_similarity_index_measure(*pair, **options)
    exact = tm.multiscale_structural_similarity_index_measure(
        *(x.double() for x in pair), **options
    )
    assert got.shape == theirs.shape
    assert got.dtype == theirs.dtype
    tolerance = 1e-8 if dtype == torch.float64 else 1e-6
    torch.testing.assert_close(got.double(), exact, rtol=0, atol=3 * tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_defaults_are_those_of_torchmetrics(dtype: torch.dtype, device: str) -> None:
    pair = image_pair((2, 3, 192, 230), dtype, device)
    got = multiscale_structural_similarity_index_measure(*pair)
    exact = tm.multiscale_structural_similarity_index_measure(*(x.double() for x in pair))
    tolerance = 1e-8 if dtype == torch.float64 else 5e-7
    torch.testing.assert_close(got.double(), exact, rtol=0, atol=tolerance)


def test_matches_pytorch_msssim(device: str) -> None:
    """Where it agrees: sizes even at each scale, one channel, and no share of the last scale, whose
    border it leaves out."""
    pair = image_pair((3, 1, 192, 208), torch.float64, device)
    betas = (0.1, 0.2, 0.3, 0.4, 0.0)
    taps = torch.from_numpy(Window().weights(2)[0]).to(device).reshape(1, 1, 1, -1)
    want = pytorch_msssim.ms_ssim(
        *pair, data_range=1.0, size_average=False, win=taps, weights=list(betas)
    )
    # It rounds the exponents to float32.
    torch.testing.assert_close(values(*pair, betas=betas), want, rtol=0, atol=1e-8)


@pytest.mark.parametrize("data_range", [1.0, (0.3, 0.6), None], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("width", [90, 1300])
def test_is_made_of_ssim_and_pooling(
    width: int, data_range: object, dtype: torch.dtype, device: str
) -> None:
    """Clamping and the range of the data apply at each scale to what was pooled without them."""
    preds, target = image_pair((2, 3, 70, width), dtype, device)
    options = {"reduction": "none", "data_range": data_range}
    got = values(preds, target, betas=TWO, **options)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    _, contrast = structural_similarity_index_measure(
        preds.to(wide), target.to(wide), return_contrast_sensitivity=True, **options
    )
    small = (F.avg_pool2d(x.to(wide), 2) for x in (preds, target))
    similarity = structural_similarity_index_measure(*small, **options)
    want = contrast.double() ** TWO[0] * similarity.double() ** TWO[1]
    check(got, want.cpu().numpy())


@pytest.mark.parametrize("first", FLOATING, ids=str)
@pytest.mark.parametrize("second", FLOATING, ids=str)
def test_mixed_dtypes(first: torch.dtype, second: torch.dtype, device: str) -> None:
    shape = (2, 2, 44, 57)
    preds = image_pair(shape, first, device)[0] * 200
    target = image_pair(shape, second, device)[1] * 200
    got = values(preds, target, data_range=255.0, betas=THREE)
    assert got.dtype == result_dtype(first)
    check(got, product(reference_means(preds, target, 3, data_range=255.0), THREE))


@pytest.mark.parametrize("scale", [1e-18, 1e-6, 1e9, 1e16])
def test_images_of_any_magnitude(scale: float, device: str) -> None:
    preds, target = (x * scale for x in image_pair((1, 1, 60, 61), torch.float32, device))
    want = product(reference_means(preds, target, 3, data_range=scale), THREE)
    check(values(preds, target, data_range=scale, betas=THREE), want)


@pytest.mark.parametrize("normalize", ["relu", "simple", None])
def test_negative_means(normalize: str | None, device: str) -> None:
    """relu comes before the power, which is NaN for what is negative."""
    preds, target = image_pair((2, 1, 50, 60), torch.float64, device)
    target[1] = 1 - preds[1]
    means = reference_means(preds, target, 3)
    assert (means[:, 0] > 0).all()
    assert (means[:, 1] < 0).all()
    got = values(preds, target, betas=THREE, normalize=normalize)
    check(got, product(means, THREE, normalize))
    assert got[1].isnan() if normalize is None else got[1] >= 0


@pytest.mark.needs_cuda
@pytest.mark.parametrize(
    ("width", "launches"),
    [
        (264, 3),  # pools, takes all scales, multiplies
        (520, 4),  # the first scale alone
    ],
)
def test_small_scales_share_their_launches(width: int, launches: int) -> None:
    preds, target = image_pair((2, 3, 200, width), torch.float32, "cuda")
    values(preds, target)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        values(preds, target)
        torch.cuda.synchronize()
    on_device = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    assert len(on_device) == launches


@pytest.mark.needs_cuda
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_memory_is_that_of_the_pooled_images(dtype: torch.dtype) -> None:
    preds, target = image_pair((4, 3, 720, 1280), dtype, "cuda")
    values(preds, target, data_range=range_of(dtype))
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = requested()
    values(preds, target, data_range=range_of(dtype))
    extra = most_requested() - before
    element = 8 if dtype == torch.float64 else 4
    assert extra <= 1 / 3 * 2 * preds.numel() * element + 2**20


@pytest.mark.needs_cuda
@pytest.mark.slow
def test_more_elements_than_a_32_bit_index_reaches() -> None:
    one = torch.randint(0, 256, (1, 3, 1080, 1920), dtype=torch.uint8, device="cuda")
    other = torch.randint(0, 256, (1, 3, 1080, 1920), dtype=torch.uint8, device="cuda")
    count = 2**31 // one.numel() + 2
    preds, target = one.expand(count, -1, -1, -1), one.repeat(count, 1, 1, 1)
    target[-1] = other[0]
    got = values(preds, target, data_range=255.0)
    assert torch.equal(got[:-1], torch.ones_like(got[:-1]))
    assert torch.equal(got[-1:], values(one, other, data_range=255.0))
