"""SSIM against its definition in float64, scikit-image and TorchMetrics."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import skimage.metrics
import torch
import torchmetrics.functional.image as tm
from torch import Tensor

from cases import CROWD, DTYPES, FLOATING, LAYOUTS, LONG, SHAPES, Layout, image_pair, range_of
from ssim_reference import Reference, Window
from syncfree.functional.image import structural_similarity_index_measure

# A map's largest error, and half a step of the result's dtype at 1 where that is coarser.
TOLERANCE = {
    torch.float64: 1e-11,
    torch.float32: 2e-6,
    torch.float16: 2**-12 + 2e-6,
    torch.bfloat16: 2**-9 + 2e-6,
}


def check(got: Tensor, want: np.ndarray, tolerance: float | None = None) -> None:
    assert got.shape == want.shape
    np.testing.assert_allclose(
        got.double().cpu().numpy(), want, rtol=0, atol=tolerance or TOLERANCE[got.dtype]
    )


def result_dtype(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype.is_floating_point else torch.float32


@cache
def reference(shape: tuple[int, ...], dtype: torch.dtype, window: Window) -> Reference:
    return Reference.of(*image_pair(shape, dtype, "cpu"), window, range_of(dtype))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [*SHAPES, (1, 1, 20, 2500), (1, 2, 41, LONG + 3)], ids=str)
def test_matches_float64(
    shape: tuple[int, ...], dtype: torch.dtype, layout: Layout, device: str
) -> None:
    preds, target = image_pair(shape, dtype, device)
    value, full = structural_similarity_index_measure(
        layout.apply(preds),
        target,
        data_range=range_of(dtype),
        reduction="none",
        return_full_image=True,
    )
    want = reference(shape, dtype, Window())
    check(full, want.map)
    check(value, want.values)
    assert value.dtype == full.dtype == result_dtype(dtype)
    assert value.device.type == full.device.type == device
    assert full.is_contiguous()


THIN = [(1, 1, 6, 43_700), (1, 1, 43_700, 6), (2, 1, 47, 5_900)]
DEFAULT_AND_UNIFORM = [Window(), Window(False, kernel_size=7)]


@pytest.mark.parametrize("kind", ["case", "bright", "blocks"])
@pytest.mark.parametrize("shape", [*THIN, CROWD], ids=str)
@pytest.mark.parametrize("window", DEFAULT_AND_UNIFORM, ids=str)
def test_values_of_large_images(
    window: Window, shape: tuple[int, ...], kind: str, device: str
) -> None:
    """On CUDA in strips, which write no map. A pixel in so thin an image shows in its mean."""
    preds, target = image_pair(shape, torch.float32, "cpu")
    if kind == "bright":
        preds, target = (0.95 + 1e-3 * x for x in (preds, target))
    elif kind == "blocks":
        rows, columns = torch.arange(shape[2]) // 17, torch.arange(shape[3]) // 29
        board = ((rows[:, None] + columns) % 2).float()
        preds, target = 0.7 * board + 0.3 * preds, 0.7 * board + 0.3 * target
    want = Reference.of(preds, target, window)
    options = {"data_range": 1.0, "reduction": "none", **window.options}
    images = preds.to(device), target.to(device)
    check(structural_similarity_index_measure(*images, **options), want.values, 4e-7)
    if min(shape[2:]) > 2 * max(window.padding(2)):
        value, contrast = structural_similarity_index_measure(
            *images, return_contrast_sensitivity=True, **options
        )
        check(value, want.values, 4e-7)
        check(contrast, want.contrast, 4e-7)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [*THIN, (1, 2, 41, LONG + 3)], ids=str)
@pytest.mark.parametrize("window", DEFAULT_AND_UNIFORM, ids=str)
def test_values_of_large_images_of_any_layout(
    window: Window, shape: tuple[int, ...], dtype: torch.dtype, layout: Layout, device: str
) -> None:
    preds, target = image_pair(shape, dtype, device)
    options = {**window.options, "data_range": range_of(dtype), "reduction": "none"}
    got = structural_similarity_index_measure(layout.apply(preds), target, **options)
    # Half a step of a 16-bit result is more than a pixel, but less than a row of six.
    tolerance = TOLERANCE[got.dtype] - (2e-6 - 4e-7 if got.dtype != torch.float64 else 0)
    check(got, reference(shape, dtype, window).values, tolerance)


WINDOWS = [
    *(Window(sigma=sigma) for sigma in (0.1, 0.3, 0.5, 0.9, 1.4, 2.0, 4.6, 5.0, (0.5, 2.5))),
    *(Window(False, kernel_size=size) for size in (1, 3, 5, 7, 13, 35, (5, 9), (3, 11), (1, 7))),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.uint8], ids=str)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_windows(window: Window, dtype: torch.dtype, device: str) -> None:
    preds, target = image_pair((2, 2, 37, 53), dtype, device)
    options = {**window.options, "data_range": range_of(dtype), "reduction": "none"}
    want = reference((2, 2, 37, 53), dtype, window)
    value, full = structural_similarity_index_measure(
        preds, target, return_full_image=True, **options
    )
    check(full, want.map)
    check(value, want.values)
    value, contrast = structural_similarity_index_measure(
        preds, target, return_contrast_sensitivity=True, **options
    )
    check(value, want.values)
    check(contrast, want.contrast)


def test_window_of_hundreds_of_taps(device: str) -> None:
    window = Window(False, kernel_size=(3, 301))
    preds, target = image_pair((1, 1, 9, 420), torch.float32, device)
    _, full = structural_similarity_index_measure(
        preds, target, data_range=1.0, return_full_image=True, **window.options
    )
    check(full, Reference.of(preds, target, window).map)


VOLUME_WINDOWS = [
    Window(),
    Window(sigma=(0.5, 1.0, 1.5)),
    Window(sigma=0.5),  # the last axis is padded by 5 under a window of 5 taps
    Window(sigma=1.5, kernel_size=(11, 11, 5)),  # and here by 2 under a window of 11
    Window(False, kernel_size=(3, 5, 7)),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.uint8], ids=str)
@pytest.mark.parametrize("window", VOLUME_WINDOWS, ids=str)
def test_volumes(window: Window, dtype: torch.dtype, device: str) -> None:
    preds, target = (x.reshape(2, 2, 12, 13, 14) for x in image_pair((2, 24, 13, 14), dtype, "cpu"))
    options = {**window.options, "data_range": range_of(dtype), "reduction": "none"}
    want = Reference.of(preds, target, window, range_of(dtype))
    last = preds.to(device).contiguous(memory_format=torch.channels_last_3d)
    value, full = structural_similarity_index_measure(
        last, target.to(device), return_full_image=True, **options
    )
    check(full, want.map)
    check(value, want.values)
    _, contrast = structural_similarity_index_measure(
        last, target.to(device), return_contrast_sensitivity=True, **options
    )
    check(contrast, want.contrast)
    _, theirs = tm.structural_similarity_index_measure(
        preds.double(), target.double(), return_full_image=True, **options
    )
    check(full, theirs.numpy())


@pytest.mark.parametrize("data_range", [1.0, 3, 0.25, (0.2, 0.7), (-1, 2), None], ids=str)
@pytest.mark.parametrize("k", [(0.01, 0.03), (0.05, 0.2), (0.0, 0.03)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_range_and_constants(
    data_range: object, k: tuple[float, float], dtype: torch.dtype, device: str
) -> None:
    preds, target = image_pair((2, 3, 40, 50), dtype, device)
    preds = preds * 0.9 - 0.2
    value, full = structural_similarity_index_measure(
        preds, target, data_range=data_range, k1=k[0], k2=k[1], return_full_image=True
    )
    want = Reference.of(preds, target, data_range=data_range, k1=k[0], k2=k[1])
    check(full, want.map)
    check(value, want.values.mean())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_range_of_the_data(layout: Layout, dtype: torch.dtype, device: str) -> None:
    """The extremes lie in the last pixel of one tensor, the other's range is smaller."""
    preds, target = image_pair((3, 2, 30, 41), dtype, device)
    preds = preds.clamp(0, preds.max() // 2 if dtype == torch.uint8 else 0.5)
    target[-1, -1, -1, -1] = 255 if dtype == torch.uint8 else 2
    got = structural_similarity_index_measure(layout.apply(preds), layout.apply(target))
    check(got, Reference.of(preds, target, data_range=None).values.mean())


@pytest.mark.parametrize("scale", [1e-18, 1e-6, 1e9, 1e16])
def test_images_of_any_magnitude(scale: float, device: str) -> None:
    """Products of four moments would leave float32."""
    preds, target = (x * scale for x in image_pair((1, 1, 40, 50), torch.float32, device))
    want = Reference.of(preds, target, data_range=scale)
    check(structural_similarity_index_measure(preds, target, data_range=scale), want.values.mean())


@pytest.mark.parametrize(("scale", "width"), [(1e3, 150), (65535.0, 150), (1e7, 150), (1e3, LONG)])
def test_pixels_far_outside_the_range(scale: float, width: int, device: str) -> None:
    """As where 16-bit images are called ones of range 1."""
    preds, target = (x * scale for x in image_pair((1, 2, 40, width), torch.float32, device))
    value, full = structural_similarity_index_measure(
        preds, target, data_range=1.0, return_full_image=True
    )
    want = Reference.of(preds, target, data_range=1.0)
    check(full, want.map)
    check(value, want.values.mean())
    alone = structural_similarity_index_measure(preds, target, data_range=1.0)
    check(alone, want.values.mean())
    (gradient,) = torch.autograd.grad(
        structural_similarity_index_measure(preds.requires_grad_(), target, data_range=1.0), preds
    )
    assert gradient.isfinite().all()


@pytest.mark.parametrize("window", DEFAULT_AND_UNIFORM, ids=str)
@pytest.mark.parametrize("width", [150, LONG])
@pytest.mark.parametrize("sign", [1, -1])
def test_differences_far_outside_the_range(
    sign: int, width: int, window: Window, device: str
) -> None:
    """Some pixels of the difference, or of the sum, lie where outliers begin, and some beyond."""
    preds, target = (x * 1500 for x in image_pair((1, 2, 40, width), torch.float32, device))
    target = sign * target.flip(-1)
    _, full = structural_similarity_index_measure(
        preds, target, data_range=1.0, return_full_image=True, **window.options
    )
    check(full, Reference.of(preds, target, window).map)


@pytest.mark.parametrize("reduction", ["elementwise_mean", "sum", "none", None])
@pytest.mark.parametrize("extra", [None, "return_full_image", "return_contrast_sensitivity"])
@pytest.mark.parametrize(
    "window", [Window(), Window(sigma=0.8), Window(False, kernel_size=7)], ids=str
)
@pytest.mark.parametrize("data_range", [1.0, (0.1, 0.8), None], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
def test_same_answers_as_torchmetrics(
    reduction: str | None,
    extra: str | None,
    window: Window,
    data_range: object,
    dtype: torch.dtype,
    device: str,
) -> None:
    preds, target = image_pair((4, 3, 24, 31), dtype, device)
    options = {**window.options, "reduction": reduction, "data_range": data_range}
    if extra is not None:
        options[extra] = True
    got = structural_similarity_index_measure(preds, target, **options)
    theirs = tm.structural_similarity_index_measure(preds, target, **options)
    exact = tm.structural_similarity_index_measure(preds.double(), target.double(), **options)
    assert isinstance(got, tuple) == isinstance(theirs, tuple)
    triples = zip(got, theirs, exact, strict=True) if extra else [(got, theirs, exact)]
    for ours, his, best in triples:
        assert ours.shape == his.shape
        assert ours.dtype == his.dtype
        images = 4 if reduction == "sum" and ours.ndim == 0 else 1
        check(ours, best.cpu().numpy(), images * TOLERANCE[dtype])


@pytest.mark.parametrize("uniform", [False, True])
def test_matches_scikit_image_inside(uniform: bool, device: str) -> None:
    """It extends images in another way, so only windows that lie inside are compared."""
    preds, target = image_pair((1, 1, 70, 60), torch.float64, device)
    a, b = preds[0, 0].cpu().numpy(), target[0, 0].cpu().numpy()
    theirs = {"win_size": 7} if uniform else {"gaussian_weights": True, "sigma": 1.5}
    _, want = skimage.metrics.structural_similarity(
        a, b, data_range=1.0, use_sample_covariance=False, full=True, **theirs
    )
    _, got = structural_similarity_index_measure(
        preds,
        target,
        gaussian_kernel=not uniform,
        kernel_size=7,
        data_range=1.0,
        return_full_image=True,
    )
    inside = (slice(5, -5), slice(5, -5))
    np.testing.assert_allclose(got[0, 0].cpu().numpy()[inside], want[inside], rtol=0, atol=1e-11)


@pytest.mark.parametrize("first", FLOATING, ids=str)
@pytest.mark.parametrize("second", FLOATING, ids=str)
def test_mixed_dtypes(first: torch.dtype, second: torch.dtype, device: str) -> None:
    preds = image_pair((2, 3, 31, 45), first, device)[0] * 200
    target = image_pair((2, 3, 31, 45), second, device)[1] * 200
    got = structural_similarity_index_measure(preds, target, data_range=255.0, reduction="none")
    assert got.dtype == result_dtype(first)
    check(got, Reference.of(preds, target, data_range=255.0).values)


def test_window_size_beyond_32_bits(device: str) -> None:
    x = torch.rand(1, 1, 16, 16, device=device)
    for size in (2**32 + 1, 2**31 + 1):
        with pytest.raises(RuntimeError, match="Padding size should be less"):
            structural_similarity_index_measure(x, x, False, kernel_size=size, data_range=1.0)
