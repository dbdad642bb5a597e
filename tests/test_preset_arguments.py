"""Presets: what they mean for PSNR, losses and ranges, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
import skimage.metrics
import torch
from torch import Tensor
from torch.nn import functional as F

from cases import image_pair, range_of
from gradient_reference import check, gradients
from preset_reference import VOLUME, formula, pair, ssim
from syncfree.functional import peak_signal_noise_ratio, structural_similarity_index_measure
from syncfree.image import PeakSignalNoiseRatio
from syncfree.losses import L1SSIMLoss, SSIMLoss, l1_ssim_loss, ssim_loss


@pytest.mark.parametrize("preset", ["wang", "skimage", "pytorch-msssim"])
def test_range_of_bytes(preset: str, device: str) -> None:
    images = image_pair((2, 3, 24, 24), torch.uint8, device)
    known = structural_similarity_index_measure(*images, preset=preset)
    assert torch.equal(known, ssim(*images, preset, reduction="elementwise_mean"))
    for mixed in (images[0].float(), images[1]), (images[0], images[1].double()):
        with pytest.raises(TypeError, match="both images as bytes or both as floats"):
            structural_similarity_index_measure(*mixed, preset=preset)


def test_bytes_of_skimage(device: str) -> None:
    images = image_pair((1, 3, 24, 24), torch.uint8, device)
    arrays = [x[0].cpu().numpy() for x in images]
    want = skimage.metrics.structural_similarity(*arrays, channel_axis=0)
    got = structural_similarity_index_measure(*images, preset="skimage")
    assert abs(got.item() - want) < 3e-7
    got = peak_signal_noise_ratio(*images, preset="skimage")
    assert torch.equal(got, PeakSignalNoiseRatio(preset="skimage").to(device)(*images))
    assert got.item() == pytest.approx(skimage.metrics.peak_signal_noise_ratio(*arrays), rel=1e-6)


@pytest.mark.parametrize("reduction", ["none", "elementwise_mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.uint8], ids=str)
@pytest.mark.parametrize("shape", [(3, 3, 17, 19), VOLUME], ids=str)
def test_psnr_of_skimage(
    shape: tuple[int, ...], dtype: torch.dtype, reduction: str, device: str
) -> None:
    preds, target = pair(shape, dtype, device)
    target[0] = target[0] // 2 if dtype == torch.uint8 else target[0] / 2
    each = [
        skimage.metrics.peak_signal_noise_ratio(
            a.cpu().numpy(), b.cpu().numpy(), data_range=range_of(dtype)
        )
        for a, b in zip(target, preds, strict=True)
    ]
    want = {"none": each, "elementwise_mean": np.mean(each), "sum": np.sum(each)}[reduction]
    got = peak_signal_noise_ratio(
        preds, target, range_of(dtype), reduction=reduction, preset="skimage"
    )
    np.testing.assert_allclose(got.double().cpu().numpy(), want, rtol=1e-6)


def test_psnr_gradient(device: str) -> None:
    images = image_pair((3, 3, 17, 19), torch.float64, device)

    def truth(a: Tensor, b: Tensor) -> Tensor:
        return (-10 * torch.log10(F.mse_loss(a, b, reduction="none").mean((1, 2, 3)))).mean()

    got = gradients(lambda a, b: peak_signal_noise_ratio(a, b, 1.0, preset="skimage"), *images)
    check(got, gradients(truth, *images))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"preset": "wang2004"}, ValueError, r"`preset` to be one of \('torchmetrics', 'wang'"),
        ({"preset": None}, ValueError, "`preset` to be one of"),
        ({"preset": ["wang"]}, ValueError, "`preset` to be one of"),
        ({"preset": "wang", "kernel_size": 9}, ValueError, "sets the window"),
        ({"preset": "wang", "sigma": (1.5, 1.5)}, ValueError, "sets the window"),
        ({"preset": "skimage", "gaussian_kernel": False}, ValueError, "sets the window"),
        ({"preset": "skimage", "data_range": 0}, ValueError, "`data_range` to be positive"),
        ({"preset": "skimage", "k2": "1"}, TypeError, "`k2`"),
    ],
)
def test_ssim_refuses(options: dict, error: type[Exception], message: str, device: str) -> None:
    images = image_pair((1, 1, 16, 16), torch.float32, device)
    with pytest.raises(error, match=message):
        structural_similarity_index_measure(*images, **{"data_range": 1.0, **options})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"preset": "wang"}, ValueError, "'torchmetrics' or 'skimage'"),
        ({"preset": "pytorch-msssim"}, ValueError, "'torchmetrics' or 'skimage'"),
        ({"preset": "skimage", "dim": (1, 2, 3)}, ValueError, "`dim` to be left out"),
        ({"preset": "skimage", "data_range": None}, ValueError, "with `preset='skimage'`"),
        ({"data_range": None}, TypeError, "`data_range` to be a number"),
    ],
)
def test_psnr_refuses(options: dict, error: type[Exception], message: str, device: str) -> None:
    images = image_pair((1, 1, 16, 16), torch.float32, device)
    with pytest.raises(error, match=message):
        peak_signal_noise_ratio(*images, **{"data_range": 1.0, **options})


@pytest.mark.parametrize("preset", ["wang", "skimage"])
def test_shapes_that_no_window_fits(preset: str, device: str) -> None:
    size = {"wang": 11, "skimage": 7}[preset]
    for shape, error in ((1, 1, size - 1, 20), RuntimeError), ((20, 20), ValueError):
        images = torch.rand(2, *shape, device=device)
        with pytest.raises(error, match=f"window of {size} taps|BxCxHxW"):
            ssim(*images, preset)
    with pytest.raises(TypeError, match="`preds` to be a tensor"):
        structural_similarity_index_measure([1.0], [1.0], data_range=1.0, preset=preset)
    with pytest.raises(ValueError, match="BxCxHxW"):
        peak_signal_noise_ratio(*torch.rand(2, 20, 20, device=device), 1.0, preset="skimage")


def test_the_preset_s_own_window_may_be_named(device: str) -> None:
    images = image_pair((1, 1, 16, 16), torch.float32, device)
    named = ssim(*images, "skimage", gaussian_kernel=False, kernel_size=7)
    assert torch.equal(named, ssim(*images, "skimage"))


def test_losses(device: str) -> None:
    images = image_pair((2, 3, 24, 61), torch.float64, device)
    full, _ = formula("skimage").terms(*images, 0.01, 0.03)
    torch.testing.assert_close(ssim_loss(*images, preset="skimage"), 1 - full.mean())
    torch.testing.assert_close(SSIMLoss(preset="skimage")(*images), 1 - full.mean())
    mask = torch.rand(full.shape[2:], device=device)
    weighted = ((1 - full) * mask).sum() / mask.expand_as(full).sum()
    torch.testing.assert_close(ssim_loss(*images, 1.0, mask, preset="skimage"), weighted)
    assert repr(SSIMLoss(preset="wang")) == "SSIMLoss(data_range=1.0, preset='wang')"
    with pytest.raises(TypeError, match=r"^l1_ssim_loss\(\) takes no argument `preset`: use ssim"):
        l1_ssim_loss(*images, preset="wang")
    with pytest.raises(TypeError, match="no argument `preset`"):
        L1SSIMLoss(preset="wang")(*images)
