"""Presets of multi-scale SSIM beside pytorch-msssim and Wang's program."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import pytorch_msssim
import torch
from torch import Tensor
from torch.nn import functional as F

from cases import DTYPES, LAYOUTS, Layout, image_pair, range_of
from gradient_reference import check, gradients
from preset_reference import formula, pair, wang_multiscale
from syncfree.functional import multiscale_structural_similarity_index_measure

BETAS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
PRESETS = ["wang", "pytorch-msssim"]
# The least sizes of five scales, even and odd at each of them.
SHAPES = [(1, 2, 176, 181), (2, 1, 177, 178)]
TOLERANCE = {torch.float64: 1e-12}
THREE = (0.2, 0.3, 0.5)


def ms_ssim(preds: Tensor, target: Tensor, preset: str, **options: object) -> Tensor:
    options = {"data_range": range_of(preds.dtype), "reduction": "none", **options}
    return multiscale_structural_similarity_index_measure(preds, target, preset=preset, **options)


def assert_close(got: Tensor, want: object, dtype: torch.dtype) -> None:
    want = torch.as_tensor(np.asarray(want, dtype=np.float64))
    assert got.shape == want.shape
    assert got.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert (got.double().cpu() - want).abs().max() <= TOLERANCE.get(dtype, 3e-7)


def theirs(images: tuple[Tensor, Tensor], **options: object) -> Tensor:
    """With taps of double precision, which its own are not; it warns of volumes."""
    options = {"data_range": range_of(images[0].dtype), "size_average": False, **options}
    a, b = (x.double().cpu() for x in images)
    win = formula("wang").taps.repeat(a.shape[1], *[1] * (a.ndim - 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytorch_msssim.ms_ssim(a, b, win=win, **options)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pytorch_msssim(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> None:
    images = image_pair(shape, dtype, device)
    assert_close(ms_ssim(*images, "pytorch-msssim"), theirs(images), dtype)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("preset", PRESETS)
def test_layouts(preset: str, layout: Layout, device: str) -> None:
    images = image_pair((2, 3, 45, 48), torch.float32, device)
    options = {"betas": (0.5, 0.5)}
    got = ms_ssim(*map(layout.apply, images), preset, **options)
    assert torch.equal(got, ms_ssim(*images, preset, **options))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.uint8], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_wang(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> None:
    """Channels one by one, and the mean of them."""
    images = image_pair(shape, dtype, device)
    a, b = (x.double().cpu().numpy() for x in images)
    want = [
        np.mean(
            [wang_multiscale(*planes, range_of(dtype), BETAS) for planes in zip(x, y, strict=True)]
        )
        for x, y in zip(a, b, strict=True)
    ]
    assert_close(ms_ssim(*images, "wang"), want, dtype)


def test_other_exponents_and_constants(device: str) -> None:
    images = image_pair((1, 2, 165, 163), torch.float64, device)
    options = {"k1": 0.02, "k2": 0.05}
    got = ms_ssim(*images, "pytorch-msssim", betas=THREE, **options)
    assert_close(got, theirs(images, weights=list(THREE), K=(0.02, 0.05)), torch.float64)
    single = ms_ssim(*images, "wang", betas=(1.0,))
    assert_close(single, pytorch_ssim(images), torch.float64)


def pytorch_ssim(images: tuple[Tensor, Tensor]) -> Tensor:
    a, b = (x.double().cpu() for x in images)
    win = formula("wang").taps.repeat(a.shape[1], *[1] * (a.ndim - 1))
    return pytorch_msssim.ssim(a, b, data_range=1.0, size_average=False, win=win)


def test_volumes(device: str) -> None:
    images = pair((1, 1, 21, 161, 162), torch.float32, device)
    got = ms_ssim(*images, "pytorch-msssim", betas=(0.4, 0.6))
    assert_close(got, theirs(images, weights=[0.4, 0.6]), torch.float32)


def halved(x: Tensor, preset: str) -> Tensor:
    odd = [size % 2 for size in x.shape[2:]]
    if preset == "wang":
        x = F.pad(x, (0, odd[1], 0, odd[0]), mode="replicate")
    else:
        x = F.pad(x, (odd[1], odd[1], odd[0], odd[0]))
    return x.unfold(2, 2, 2).unfold(3, 2, 2).mean((-2, -1))


def truth(a: Tensor, b: Tensor, preset: str, betas: tuple[float, ...]) -> Tensor:
    terms = formula(preset).terms
    product = torch.ones((), dtype=torch.float64, device=a.device)
    for level, beta in enumerate(betas, start=1):
        full, contrast = terms(a, b, 0.01, 0.03)
        mean = (full if level == len(betas) else contrast).mean((2, 3))
        product = product * mean**beta
        a, b = halved(a, preset), halved(b, preset)
    return product.mean(1)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_gradients(preset: str, dtype: torch.dtype, device: str) -> None:
    images = image_pair((2, 2, 51, 46), dtype, device)
    scale = 2.0**13
    got = gradients(lambda a, b: ms_ssim(a, b, preset, betas=THREE).sum() * scale, *images)
    want = gradients(
        lambda a, b: truth(a, b, preset, THREE).sum() * scale, *(x.double() for x in images)
    )
    check(got, want)


@pytest.mark.parametrize("preset", PRESETS)
def test_negative_means_are_zero_without_a_gradient(preset: str, device: str) -> None:
    preds = image_pair((2, 1, 44, 44), torch.float32, device)[0]
    target = preds.clone()
    target[0] = 1 - target[0]
    values = ms_ssim(preds.requires_grad_(), target, preset, betas=(0.5, 0.5))
    assert values[0].item() == 0.0
    assert values[1].item() == 1.0
    values.sum().backward()
    assert not preds.grad[0].any()
    assert preds.grad.isfinite().all()
    spoilt = preds.detach().clone()
    spoilt[1, 0, 20, 20] = torch.nan
    values = ms_ssim(spoilt, target, preset, betas=(0.5, 0.5))
    assert values.isnan().tolist() == [False, True]


@pytest.mark.parametrize("preset", PRESETS)
def test_reductions_ranges_and_bytes(preset: str, device: str) -> None:
    images = image_pair((3, 2, 45, 47), torch.float32, device)
    options = {"betas": (0.5, 0.5)}
    each = ms_ssim(*images, preset, **options)
    assert torch.equal(ms_ssim(*images, preset, reduction=None, **options), each)
    for reduction, want in (("elementwise_mean", each.mean()), ("sum", each.sum())):
        torch.testing.assert_close(ms_ssim(*images, preset, reduction=reduction, **options), want)
    clamped = [x.clamp(0.25, 0.75) for x in images]
    torch.testing.assert_close(
        ms_ssim(*images, preset, data_range=(0.25, 0.75), **options),
        ms_ssim(*clamped, preset, data_range=0.5, **options),
    )
    some = image_pair((2, 1, 45, 47), torch.uint8, device)
    assert torch.equal(
        ms_ssim(*some, preset, data_range=None, **options), ms_ssim(*some, preset, **options)
    )
    assert torch.equal(ms_ssim(images[0], images[0], preset, **options), torch.ones_like(each))
    assert ms_ssim(*(x[:0] for x in images), preset, **options).shape == (0,)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"preset": "skimage"}, ValueError, "scikit-image has no multi-scale SSIM"),
        ({"preset": "piq"}, ValueError, r"`preset` to be one of \('torchmetrics', 'wang', 'pyt"),
        ({"preset": None}, ValueError, "`preset` to be one of"),
        ({"kernel_size": 7}, ValueError, "sets the window"),
        ({"sigma": 2.0}, ValueError, "sets the window"),
        ({"gaussian_kernel": False}, ValueError, "sets the window"),
        ({"normalize": "simple"}, ValueError, "`normalize` to be left"),
        ({"normalize": None}, ValueError, "`normalize` to be left"),
        ({"data_range": None}, ValueError, "`data_range` with `preset="),
        ({"data_range": -1.0}, ValueError, "`data_range` to be positive"),
        ({"betas": [0.5, 0.5]}, ValueError, "type tuple"),
        ({"betas": ()}, ValueError, "`betas` to hold 1 to 32 numbers, but got 0"),
        ({"betas": BETAS}, ValueError, "at least 1(76|61) pixels an axis for 5 `betas`"),
        ({"reduction": "max"}, ValueError, "`reduction` to be one of"),
        ({"k1": "1"}, TypeError, "`k1`"),
    ],
)
@pytest.mark.parametrize("preset", PRESETS)
def test_refuses(
    preset: str, options: dict, error: type[Exception], message: str, device: str
) -> None:
    images = image_pair((1, 1, 40, 40), torch.float32, device)
    options = {"preset": preset, "data_range": 1.0, "betas": (0.5, 0.5), **options}
    with pytest.raises(error, match=message):
        multiscale_structural_similarity_index_measure(*images, **options)


def test_refuses_what_are_no_images(device: str) -> None:
    options = {"data_range": 1.0, "preset": "wang"}
    with pytest.raises(TypeError, match="`preds` to be a tensor"):
        multiscale_structural_similarity_index_measure([1.0], [1.0], **options)
    with pytest.raises(ValueError, match="BxCxHxW"):
        multiscale_structural_similarity_index_measure(*torch.rand(2, 200, 200), **options)
    a, b = torch.rand(1, 1, 200, 200), torch.rand(1, 1, 200, 201)
    with pytest.raises(RuntimeError, match="same shape"):
        multiscale_structural_similarity_index_measure(a, b, **options)
    for dtype in (torch.bool, torch.float8_e4m3fn):
        with pytest.raises(RuntimeError, match=r"Expected `preds` to be (images|a tensor of)"):
            multiscale_structural_similarity_index_measure(a.to(dtype), a, **options)


@pytest.mark.parametrize("preset", PRESETS)
def test_compiles_whole(preset: str, device: str) -> None:
    def step(a: Tensor, b: Tensor) -> Tensor:
        return ms_ssim(a, b, preset, betas=(0.5, 0.5))

    images = image_pair((2, 1, 45, 47), torch.float32, device)
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*images), step(*images))


@pytest.mark.parametrize("preset", PRESETS)
def test_torchmetrics_is_the_default(preset: str, device: str) -> None:
    images = image_pair((1, 1, 44, 46), torch.float32, device)
    options = {"betas": (0.5, 0.5), "sigma": 1.0, "data_range": 1.0}
    plain = multiscale_structural_similarity_index_measure(*images, **options)
    named = multiscale_structural_similarity_index_measure(
        *images, **options, preset="torchmetrics"
    )
    assert torch.equal(plain, named)
    assert plain.item() != ms_ssim(*images, preset, betas=(0.5, 0.5)).item()
