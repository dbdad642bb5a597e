"""`image_quality` against NumPy in float64 and against the functions that it joins."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from cases import CROWD, DTYPES, LAYOUTS, LONG, SHAPES, Layout, image_pair, range_of
from ssim_reference import Window
from syncfree.functional.image import (
    ImageQuality,
    image_quality,
    peak_signal_noise_ratio,
    structural_similarity_index_measure,
)

# Relative, of the sums of errors: float32 within a row, float64 above.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6}


def check(got: Tensor, want: np.ndarray) -> None:
    assert got.shape == want.shape
    np.testing.assert_allclose(got.double().cpu().numpy(), want, rtol=TOLERANCE[got.dtype])


def check_errors(
    got: ImageQuality,
    preds: Tensor,
    target: Tensor,
    data_range: float | tuple[float, float],
    per_image: bool,
) -> None:
    a, b = (t.cpu().double().numpy() for t in (preds, target))
    if isinstance(data_range, tuple):
        a, b = a.clip(*data_range), b.clip(*data_range)
        data_range = data_range[1] - data_range[0]
    axes = tuple(range(1, a.ndim)) if per_image else None
    check(got.psnr, np.asarray(10 * np.log10(data_range**2 / ((a - b) ** 2).mean(axes))))
    check(got.mae, np.asarray(np.abs(a - b).mean(axes)))
    expected = torch.float64 if preds.dtype == torch.float64 else torch.float32
    assert got.psnr.dtype == got.mae.dtype == expected
    assert got.psnr.device == got.ssim.device == got.mae.device == preds.device


@pytest.mark.parametrize("reduction", ["elementwise_mean", "none", None])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [*SHAPES, (1, 1, 20, 2500), (2, 2, 9, 13, 14)], ids=str)
def test_errors_match_float64(
    shape: tuple[int, ...], dtype: torch.dtype, reduction: str | None, device: str
) -> None:
    preds, target = image_pair(shape, dtype, device)
    got = image_quality(preds, target, range_of(dtype), reduction=reduction, sigma=1.1)
    check_errors(got, preds, target, range_of(dtype), reduction != "elementwise_mean")


# In units of 8, 10 and 42 rows, one or several to a warp; whole vectors of columns or not.
LARGE = [(2, 1, 131, 2100), (1, 3, 130, 701), (1, 1, 264, 1024), (5, 1, 43_700, 6), CROWD]


@pytest.mark.parametrize("window", [Window(), Window(False, kernel_size=7)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("clamps", [False, True])
@pytest.mark.parametrize("shape", LARGE, ids=str)
def test_errors_of_large_images(
    shape: tuple[int, ...], clamps: bool, dtype: torch.dtype, window: Window, device: str
) -> None:
    """Cut into units of rows and strips of columns, each pixel counted once."""
    preds, target = image_pair(shape, dtype, device)
    data_range = (0.25 * range_of(dtype), 0.6 * range_of(dtype)) if clamps else range_of(dtype)
    got = image_quality(preds, target, data_range, reduction="none", **window.options)
    check_errors(got, preds, target, data_range, per_image=True)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_bits_of_large_images_do_not_depend_on_layout_or_company(
    layout: Layout, device: str
) -> None:
    preds, target = image_pair((2, 3, 131, 700), torch.float32, device)
    whole = image_quality(preds, target, 1.0, reduction="none")
    laid_out = image_quality(layout.apply(preds), layout.apply(target), 1.0, reduction="none")
    for i in range(2):
        alone = image_quality(preds[i : i + 1], target[i : i + 1], 1.0, reduction="none")
        for each, one, all_of_them in zip(laid_out, alone, whole, strict=True):
            assert torch.equal(each, all_of_them)
            assert torch.equal(one[0], all_of_them[i])


@pytest.mark.parametrize("reduction", ["elementwise_mean", "none"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize(
    ("dtype", "width"), [*((dtype, 45) for dtype in DTYPES), (torch.float32, LONG)], ids=str
)
def test_ssim_has_the_bits_of_its_own_function(
    dtype: torch.dtype, width: int, layout: Layout, reduction: str, device: str
) -> None:
    preds, target = image_pair((3, 2, 70, width), dtype, device)
    got = image_quality(layout.apply(preds), target, range_of(dtype), reduction=reduction)
    alone = structural_similarity_index_measure(
        preds, target, data_range=range_of(dtype), reduction=reduction
    )
    assert torch.equal(got.ssim, alone)
    assert got.ssim.dtype == alone.dtype
    psnr = peak_signal_noise_ratio(preds, target, range_of(dtype))
    if reduction == "elementwise_mean":
        torch.testing.assert_close(got.psnr, psnr, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    "window",
    [
        Window(sigma=0.3),
        Window(sigma=0.5, kernel_size=3),
        Window(sigma=5.0),
        Window(False, kernel_size=(7, 15)),
    ],
    ids=str,
)
@pytest.mark.parametrize("data_range", [1.0, 4, (0.25, 0.6)], ids=str)
def test_windows_and_ranges(window: Window, data_range: object, device: str) -> None:
    preds, target = image_pair((2, 3, 40, 300), torch.float32, device)
    got = image_quality(preds, target, data_range, reduction="none", **window.options)
    check_errors(got, preds, target, data_range, per_image=True)
    alone = structural_similarity_index_measure(
        preds, target, data_range=data_range, reduction="none", **window.options
    )
    assert torch.equal(got.ssim, alone)


@pytest.mark.parametrize(
    "window",
    [Window(sigma=0.5, kernel_size=11), Window(kernel_size=(11, 11, 3))],
    ids=["map wider than the volume", "map narrower than the volume"],
)
def test_volumes_count_each_voxel_once(window: Window, device: str) -> None:
    preds, target = image_pair((2, 12 * 13, 14, 11), torch.float32, device)
    preds, target = preds.reshape(2, 12, 13, 14, 11), target.reshape(2, 12, 13, 14, 11)
    got = image_quality(preds, target, 1.0, reduction="none", **window.options)
    check_errors(got, preds, target, 1.0, per_image=True)


def test_constants_reach_ssim(device: str) -> None:
    preds, target = image_pair((1, 1, 40, 30), torch.float32, device)
    got = image_quality(preds, target, 1.0, k1=0.2, k2=0.4)
    alone = structural_similarity_index_measure(preds, target, data_range=1.0, k1=0.2, k2=0.4)
    assert torch.equal(got.ssim, alone)


def test_a_missing_range_is_asked_for(device: str) -> None:
    images = torch.rand(2, 3, 16, 16, device=device)
    for call in (
        lambda: image_quality(images, images),
        lambda: image_quality(images, images, None),
    ):
        with pytest.raises(TypeError, match=r"got None or nothing. Pass 1.0 for images of floats"):
            call()


def test_identical_images(device: str) -> None:
    x = torch.rand(2, 3, 20, 30, device=device)
    got = image_quality(x, x.clone(), 1.0, reduction="none")
    assert got.psnr.tolist() == [math.inf, math.inf]
    assert got.ssim.tolist() == [1.0, 1.0]
    assert got.mae.tolist() == [0.0, 0.0]


def test_nan_stays_with_its_image(device: str) -> None:
    preds, target = image_pair((3, 1, 30, 30), torch.float32, device)
    preds[1, 0, 29, 29] = math.nan
    for data_range in (1.0, (0.0, 1.0)):
        for values in image_quality(preds, target, data_range, reduction="none"):
            assert values.isnan().tolist() == [False, True, False]
        for value in image_quality(preds, target, data_range):
            assert value.isnan()


@pytest.mark.parametrize("window", [Window(), Window(sigma=0.3)], ids=str)
def test_infinite_pixel_has_an_infinite_error(window: Window, device: str) -> None:
    preds, target = image_pair((2, 1, 30, 40), torch.float32, device)
    preds[1, 0, 7, 39] = math.inf
    got = image_quality(preds, target, 1.0, reduction="none", **window.options)
    assert got.psnr[1] == -math.inf
    assert got.mae[1] == math.inf
    assert got.ssim.isnan().tolist() == [False, True]


def test_bits_of_an_image_do_not_depend_on_its_company(device: str) -> None:
    preds, target = image_pair((4, 3, 61, 83), torch.float16, device)
    whole = image_quality(preds, target, 1.0, reduction="none")
    for i in range(4):
        alone = image_quality(preds[i : i + 1], target[i : i + 1], 1.0, reduction="none")
        for one, all_of_them in zip(alone, whole, strict=True):
            assert torch.equal(one[0], all_of_them[i])


def test_empty_batch(device: str) -> None:
    x = torch.rand(0, 3, 16, 16, device=device)
    for value in image_quality(x, x, 1.0):
        assert value.isnan()
    for values in image_quality(x, x, 1.0, reduction="none"):
        assert values.shape == (0,)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"data_range": None}, TypeError, "`data_range` to be a number"),
        ({"data_range": 0}, ValueError, "`data_range` to be positive"),
        ({"data_range": float("inf")}, ValueError, "positive and finite, but got inf"),
        ({"data_range": (0.0, float("inf"))}, ValueError, "finite numbers with low < high"),
        ({"data_range": 1.0, "reduction": "sum"}, ValueError, "`reduction` to be one of"),
        ({"data_range": 1.0, "kernel_size": 2}, ValueError, "`kernel_size` to have odd positive"),
        ({"data_range": 1.0, "sigma": -1.0}, ValueError, "`sigma` to have positive"),
        ({"data_range": 1.0, "sigma": 9.0}, RuntimeError, "Padding size should be less than"),
    ],
)
def test_bad_arguments(arguments: dict, error: type[Exception], message: str, device: str) -> None:
    x = torch.rand(1, 3, 16, 16, device=device)
    with pytest.raises(error, match=message):
        image_quality(x, x, **arguments)


def test_bad_shapes(device: str) -> None:
    x = torch.rand(1, 3, 16, 16, device=device)
    with pytest.raises(RuntimeError, match="expected to have the same shape"):
        image_quality(x, x[:, :1], 1.0)
    with pytest.raises(ValueError, match="BxCxHxW or BxCxDxHxW shape"):
        image_quality(x[0], x[0], 1.0)
