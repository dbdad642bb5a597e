"""Named presets beside the libraries that they are named after, and beside the formula of each."""

from __future__ import annotations

import numpy as np
import pytest
import pytorch_msssim
import skimage.metrics
import torch
from torch import Tensor

from cases import DTYPES, LAYOUTS, Layout, image_pair, range_of
from gradient_reference import check, gradients
from preset_reference import VOLUME, formula, pair, ssim, wang
from syncfree.functional import peak_signal_noise_ratio, structural_similarity_index_measure

# One window, odd, tall, wide, one strip of a GPU's fast path and several.
SHAPES = [
    (1, 1, 11, 11),
    (2, 3, 16, 16),
    (1, 3, 33, 47),
    (3, 1, 131, 12),
    (1, 2, 12, 300),
    (2, 3, 64, 128),
    (1, 1, 97, 259),
]
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 3e-7,
    torch.uint8: 3e-7,
    torch.float16: 6e-4,
    torch.bfloat16: 4e-3,
}


def assert_close(got: Tensor, want: object, dtype: torch.dtype) -> None:
    want = torch.as_tensor(np.asarray(want, dtype=np.float64))
    assert got.shape == want.shape
    assert (got.double().cpu() - want).abs().max() <= TOLERANCE[dtype]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_wang(shape: tuple[int, ...], dtype: torch.dtype, layout: Layout, device: str) -> None:
    """Channels one by one, and the mean of them."""
    images = image_pair(shape, dtype, device)
    got = ssim(*map(layout.apply, images), "wang")
    a, b = (x.double().cpu().numpy() for x in images)
    top = range_of(dtype)
    want = [
        np.mean([wang(*pair, top) for pair in zip(*planes, strict=True)])
        for planes in zip(a, b, strict=True)
    ]
    assert_close(got, want, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [*SHAPES, VOLUME], ids=str)
def test_pytorch_msssim(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> None:
    images = pair(shape, dtype, device)
    options = {"data_range": range_of(dtype), "size_average": False}
    wide = [x.double().cpu() for x in images]
    got = ssim(*images, "pytorch-msssim")
    # Its taps have single precision whatever the images have, unless it is given better ones.
    default = pytorch_msssim.ssim(*wide, **options)
    assert (got.double().cpu() - default).abs().max() <= TOLERANCE[dtype] + 5e-6
    taps = formula("wang").taps.repeat(shape[1], *[1] * (len(shape) - 1))
    assert_close(got, pytorch_msssim.ssim(*wide, **options, win=taps), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [*SHAPES, (1, 2, 7, 9), VOLUME], ids=str)
def test_skimage(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> None:
    images = pair(shape, dtype, device)
    want = [
        skimage.metrics.structural_similarity(
            a.double().cpu().numpy(),
            b.double().cpu().numpy(),
            data_range=range_of(dtype),
            channel_axis=0,
        )
        for a, b in zip(*images, strict=True)
    ]
    assert_close(ssim(*images, "skimage"), want, dtype)


PRESETS = ["wang", "skimage"]  # pytorch-msssim is Wang's here
FLOATING = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
K = {"k1": 0.02, "k2": 0.05}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("dtype", FLOATING[:2], ids=str)
@pytest.mark.parametrize("shape", [*SHAPES, VOLUME], ids=str)
def test_map_and_contrast(
    shape: tuple[int, ...], dtype: torch.dtype, preset: str, device: str
) -> None:
    images = pair(shape, dtype, device)
    want, contrast = formula(preset, len(shape) - 2).terms(*(x.double() for x in images), **K)
    value, full = ssim(*images, preset, return_full_image=True, **K)
    assert full.shape == want.shape
    assert (full - want).abs().max() <= {torch.float64: 1e-11, torch.float32: 2e-6}[dtype]
    assert_close(value, want.flatten(1).mean(1).cpu(), dtype)
    value, got = ssim(*images, preset, return_contrast_sensitivity=True, **K)
    assert_close(value, want.flatten(1).mean(1).cpu(), dtype)
    assert_close(got, contrast.flatten(1).mean(1).cpu(), dtype)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("shape", [*SHAPES, (1, 2, 300, 70), VOLUME], ids=str)
def test_gradients(shape: tuple[int, ...], dtype: torch.dtype, preset: str, device: str) -> None:
    images = pair(shape, dtype, device)
    scale = 2.0 ** (images[0].numel().bit_length() - 1)
    terms = formula(preset, len(shape) - 2).terms
    got = gradients(lambda a, b: ssim(a, b, preset, reduction="sum", **K) * scale, *images)
    want = gradients(
        lambda a, b: terms(a, b, **K)[0].flatten(1).mean(1).sum() * scale,
        *(x.double() for x in images),
    )
    check(got, want)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("extra", ["map", "contrast"])
@pytest.mark.parametrize("shape", [(2, 3, 33, 147), VOLUME], ids=str)
def test_gradients_of_both_results(
    shape: tuple[int, ...], extra: str, preset: str, device: str
) -> None:
    images = pair(shape, torch.float32, device)
    terms = formula(preset, len(shape) - 2).terms
    option = {"map": "return_full_image", "contrast": "return_contrast_sensitivity"}[extra]
    upstream = torch.rand(VOLUME[0], *[1] * (len(shape) - 1), device=device) * 2 - 1

    def loss(a: Tensor, b: Tensor) -> Tensor:
        value, other = ssim(a, b, preset, **{option: True}, **K)
        weights = upstream.to(other) if extra == "map" else upstream.to(other).flatten()
        return value.sum() + (other * weights).sum()

    def truth(a: Tensor, b: Tensor) -> Tensor:
        full, contrast = terms(a, b, **K)
        other = full if extra == "map" else contrast / contrast[0].numel()
        return full.flatten(1).mean(1).sum() + (other * upstream.double()).sum()

    check(gradients(loss, *images), gradients(truth, *(x.double() for x in images)))


@pytest.mark.parametrize("preset", PRESETS)
def test_clamping_range(preset: str, device: str) -> None:
    """No library knows an interval, but it means the same everywhere: clamp, then the width."""
    images = image_pair((2, 3, 40, 61), torch.float32, device)
    bounds = 0.25, 0.75
    clamped = [x.clamp(*bounds) for x in images]
    torch.testing.assert_close(
        ssim(*images, preset, data_range=bounds), ssim(*clamped, preset, data_range=0.5)
    )
    got = gradients(lambda a, b: ssim(a, b, preset, data_range=bounds).sum(), *images)
    want = gradients(
        lambda a, b: ssim(a.clamp(*bounds), b.clamp(*bounds), preset, data_range=0.5).sum(), *images
    )
    check(got, [w.double() for w in want])


@pytest.mark.parametrize("preset", PRESETS)
def test_mixed_dtypes(preset: str, device: str) -> None:
    """On a GPU these take the portable way."""
    preds, target = image_pair((2, 3, 24, 70), torch.float16, device)
    full, _ = formula(preset).terms(preds.double(), target.double(), 0.01, 0.03)
    got = ssim(preds.float(), target, preset)
    assert_close(got, full.flatten(1).mean(1).cpu(), torch.float32)


@pytest.mark.parametrize("preset", PRESETS)
def test_bits_do_not_depend_on_the_batch(preset: str, device: str) -> None:
    preds, target = image_pair((5, 3, 50, 140), torch.float32, device)
    values = ssim(preds, target, preset)
    for i in range(5):
        assert torch.equal(ssim(preds[i : i + 1], target[i : i + 1], preset), values[i : i + 1])
    assert torch.equal(ssim(preds, preds, preset), torch.ones_like(values))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_nan_spoils_the_windows_that_hold_it(preset: str, device: str) -> None:
    preds, target = image_pair((1, 1, 30, 40), torch.float32, device)
    preds[0, 0, 0, 0] = torch.nan
    _, full = ssim(preds, target, preset, return_full_image=True)
    assert full.isnan().nonzero().tolist() == [[0, 0, 0, 0]]
    assert ssim(preds, target, preset).isnan().all()


def test_torchmetrics_is_the_default(device: str) -> None:
    images = image_pair((2, 3, 40, 61), torch.float32, device)
    options = {"data_range": 1.0, "sigma": 1.0}
    assert torch.equal(
        structural_similarity_index_measure(*images, **options, preset="torchmetrics"),
        structural_similarity_index_measure(*images, **options),
    )
    assert torch.equal(
        peak_signal_noise_ratio(*images, 1.0, preset="torchmetrics"),
        peak_signal_noise_ratio(*images, 1.0),
    )
