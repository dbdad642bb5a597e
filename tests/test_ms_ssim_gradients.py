"""Gradients of multi-scale SSIM against autograd of its definition in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
import torchmetrics.functional.image as tm
from torch import Tensor

from cases import image_pair
from gradient_reference import TOLERANCE, gradients, multiscale, true_gradients
from gradient_reference import check as check_within
from ssim_reference import Window
from syncfree.functional.image import multiscale_structural_similarity_index_measure

FLOATING = [torch.float64, torch.float32, torch.float16, torch.bfloat16]

FIVE = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
TWO, THREE = (0.4, 0.6), (0.2, 0.3, 0.5)

# The smallest for their number of scales, odd at several scales, tall, wide, one scale alone.
CASES = [
    ((1, 1, 176, 176), FIVE),
    ((2, 3, 199, 181), FIVE),
    ((1, 1, 179, 523), FIVE),
    ((1, 2, 12, 12), TWO),
    ((3, 1, 131, 13), TWO),
    ((2, 2, 49, 260), THREE),
    ((2, 3, 33, 47), (1.5,)),
]

WINDOWS = [
    Window(sigma=0.5, kernel_size=5),
    Window(sigma=(0.5, 1.5), kernel_size=5),
    Window(False, kernel_size=7),
    Window(False, kernel_size=(5, 9)),
    Window(sigma=2.0),
]

VOLUME_WINDOWS = [
    Window(sigma=0.8, kernel_size=5),
    Window(sigma=0.5, kernel_size=7),  # the last axis is padded by 3 under a window of 5 taps
    Window(sigma=(0.5, 1.0, 0.8), kernel_size=(3, 5, 3)),  # and here by 1 under a window of 7
    Window(False, kernel_size=(3, 5, 7)),
]

# One for each path that a problem may take.
PATHS = [Window(), Window(sigma=1.2), Window(False, kernel_size=5)]

every_path = pytest.mark.parametrize("window", PATHS, ids=str)


def ms_ssim(preds: Tensor, target: Tensor, **options: object) -> Tensor:
    return multiscale_structural_similarity_index_measure(
        preds, target, **{"data_range": 1.0, **options}
    )


def check(got: Sequence[Tensor], want: Sequence[Tensor]) -> None:
    """Pooled images are float32, whose rounding comes on top of each scale's own."""
    for g, w in zip(got, want, strict=True):
        pooling = 0 if g.dtype == torch.float64 else 7e-6
        check_within([g], [w], TOLERANCE[g.dtype] + pooling)


def weight(shape: tuple[int, ...]) -> float:
    """Brings gradients of a mean near 1, exactly in any dtype, so that halves do not underflow."""
    return 2.0 ** (torch.Size(shape).numel().bit_length() - 1)


def volumes(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> list[Tensor]:
    flat = shape[0], shape[1] * shape[2], *shape[3:]
    return [x.reshape(shape) for x in image_pair(flat, dtype, device)]


def correlated(shape: tuple[int, ...], device: str) -> list[Tensor]:
    """Small images in float64 whose means are positive at each scale, ready for gradcheck."""
    generator = torch.Generator().manual_seed(4)
    a, noise = torch.rand(2, *shape, generator=generator, dtype=torch.float64)
    return [x.to(device).requires_grad_() for x in (a, 0.7 * a + 0.3 * noise)]


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize(
    ("shape", "betas"), CASES, ids=["x".join(map(str, shape)) for shape, _ in CASES]
)
def test_value(
    shape: tuple[int, ...], betas: tuple[float, ...], dtype: torch.dtype, device: str
) -> None:
    images = image_pair(shape, dtype, device)
    scale = weight(shape)
    got = gradients(lambda a, b: ms_ssim(a, b, betas=betas) * scale, *images)
    assert [g.dtype for g in got] == [dtype, dtype]
    check(got, true_gradients(lambda a, b: multiscale(a, b, betas).mean() * scale, *images))


@pytest.mark.parametrize("normalize", ["relu", "simple", None])
@pytest.mark.parametrize("dtype", FLOATING[:2], ids=str)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_windows(window: Window, dtype: torch.dtype, normalize: str | None, device: str) -> None:
    images = image_pair((2, 2, 61, 78), dtype, device)
    options = {"betas": THREE, "normalize": normalize}
    got = gradients(lambda a, b: ms_ssim(a, b, **options, **window.options), *images)
    check(
        got, true_gradients(lambda a, b: multiscale(a, b, window=window, **options).mean(), *images)
    )


@pytest.mark.parametrize("data_range", [1.0, (0.25, 0.75)], ids=str)
@pytest.mark.parametrize("dtype", FLOATING[:3], ids=str)
@pytest.mark.parametrize("window", VOLUME_WINDOWS, ids=str)
def test_volumes(
    window: Window, dtype: torch.dtype, data_range: float | tuple[float, float], device: str
) -> None:
    shape = (2, 1, 17, 29, 30)
    images = volumes(shape, dtype, device)
    scale = weight(shape)
    options = {"betas": THREE, "data_range": data_range}
    got = gradients(lambda a, b: ms_ssim(a, b, **options, **window.options) * scale, *images)
    check(
        got,
        true_gradients(
            lambda a, b: multiscale(a, b, window=window, **options).mean() * scale, *images
        ),
    )


@every_path
@pytest.mark.parametrize("reduction", ["elementwise_mean", "sum", "none"])
@pytest.mark.parametrize("data_range", [2.0, (0.3, 0.7), None], ids=str)
@pytest.mark.parametrize("dtype", FLOATING[:2], ids=str)
def test_options(
    reduction: str, data_range: object, window: Window, dtype: torch.dtype, device: str
) -> None:
    """What was clamped gets a gradient from coarser scales alone."""
    images = image_pair((3, 2, 45, 52), dtype, device)
    options = {"betas": THREE, "data_range": data_range, "k1": 0.02, "k2": 0.05}
    per_image = torch.tensor([3.0, -1.0, 0.5], device=device, dtype=torch.float64)

    def reduce(values: Tensor) -> Tensor:
        if reduction == "none":
            return values @ per_image.to(values.dtype)
        return values.mean() if reduction == "elementwise_mean" else values.sum()

    def loss(a: Tensor, b: Tensor) -> Tensor:
        value = ms_ssim(a, b, reduction=reduction, **options, **window.options)
        return reduce(value) if reduction == "none" else value

    check(
        gradients(loss, *images),
        true_gradients(lambda a, b: reduce(multiscale(a, b, window=window, **options)), *images),
    )


@pytest.mark.parametrize("normalize", ["relu", "simple", None])
@pytest.mark.parametrize("reduction", ["elementwise_mean", "sum", "none"])
@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((2, 1, 11, 13), {"sigma": 0.7, "kernel_size": 5}),
        ((2, 1, 11, 13), {"gaussian_kernel": False, "kernel_size": (3, 5)}),
        ((2, 2, 5, 7, 6), {"sigma": 0.4, "kernel_size": 3}),
    ],
    ids=["gaussian", "uniform", "volume"],
)
def test_gradcheck(
    shape: tuple[int, ...],
    options: dict[str, object],
    reduction: str,
    normalize: str | None,
    device: str,
) -> None:
    """Every size is odd somewhere, so that pooling leaves out a last slice, row or column."""
    options = {"betas": TWO, "reduction": reduction, "normalize": normalize, **options}
    assert torch.autograd.gradcheck(
        lambda a, b: ms_ssim(a, b, **options), correlated(shape, device), atol=1e-7
    )


# Exact in float32, to which TorchMetrics rounds its betas.
EXACT_BETAS = (0.25, 0.125, 0.625)


@pytest.mark.parametrize("normalize", ["relu", "simple", None])
@pytest.mark.parametrize("data_range", [1.0, (0.3, 0.7)], ids=str)
@pytest.mark.parametrize(
    ("shape", "window"),
    [
        ((2, 3, 51, 46), Window()),
        ((2, 3, 51, 46), Window(False, kernel_size=7)),
        ((2, 1, 17, 29, 30), Window(sigma=0.8, kernel_size=5)),
    ],
    ids=str,
)
def test_agrees_with_torchmetrics(
    shape: tuple[int, ...], window: Window, data_range: object, normalize: str | None, device: str
) -> None:
    options = {
        "betas": EXACT_BETAS,
        "data_range": data_range,
        "normalize": normalize,
        **window.options,
    }
    flat = shape if len(shape) == 4 else (shape[0], shape[1] * shape[2], *shape[3:])
    images = [x.reshape(shape) for x in image_pair(flat, torch.float64, device)]

    def theirs(a: Tensor, b: Tensor) -> Tensor:
        return tm.multiscale_structural_similarity_index_measure(a, b, **options)

    want = gradients(theirs, *images)
    check_within(gradients(lambda a, b: ms_ssim(a, b, **options), *images), want, 1e-9)
    narrow = [x.float() for x in images]
    check_within(
        gradients(lambda a, b: ms_ssim(a, b, **options), *narrow),
        true_gradients(theirs, *narrow),
        1e-5,
    )


@pytest.mark.parametrize("dtype", FLOATING[2:], ids=str)
def test_halves_are_closer_to_float64_than_torchmetrics(dtype: torch.dtype, device: str) -> None:
    images = image_pair((2, 3, 192, 180), dtype, device)
    scale = weight(images[0].shape)
    want = true_gradients(lambda a, b: multiscale(a, b, FIVE).mean() * scale, *images)

    def errors(function: Callable[..., Tensor]) -> list[float]:
        got = gradients(lambda a, b: function(a, b, data_range=1.0) * scale, *images)
        return [(g.double() - w).abs().mean().item() for g, w in zip(got, want, strict=True)]

    theirs = errors(tm.multiscale_structural_similarity_index_measure)
    for ours, other in zip(errors(ms_ssim), theirs, strict=True):
        assert ours < 0.2 * other


@pytest.mark.parametrize("betas", [TWO, (0.0, 1.0), (2.0, 0.5), (1.0, 0.0)], ids=str)
@pytest.mark.parametrize("normalize", ["relu", "simple", None])
def test_exponents(betas: tuple[float, ...], normalize: str | None, device: str) -> None:
    """Those of 0 and 1 are no special cases."""
    images = image_pair((2, 1, 30, 33), torch.float64, device)
    options = {"betas": betas, "normalize": normalize}
    got = gradients(lambda a, b: ms_ssim(a, b, **options), *images)
    check(got, true_gradients(lambda a, b: multiscale(a, b, **options).mean(), *images))
