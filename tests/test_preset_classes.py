"""Presets of the metric classes: the functions' values over many batches."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import pytorch_msssim
import skimage.metrics
import torch
from torch import Tensor
from torchmetrics import Metric

from cases import image_pair, range_of
from preset_reference import formula, pair, wang, wang_multiscale
from syncfree import functional as sf
from syncfree.image import (
    MultiScaleStructuralSimilarityIndexMeasure,
    PeakSignalNoiseRatio,
    StructuralSimilarityIndexMeasure,
)

TWO = (0.4, 0.6)
SSIM_PRESETS = ["wang", "pytorch-msssim", "skimage"]
MS_PRESETS = ["wang", "pytorch-msssim"]
SHAPES = [(2, 3, 45, 47), (3, 3, 45, 47), (1, 3, 44, 51)]


def batches(device: str, dtype: torch.dtype = torch.float32) -> list[tuple[Tensor, Tensor]]:
    return [image_pair(shape, dtype, device, seed) for seed, shape in enumerate(SHAPES)]


def make(kind: type[Metric], device: str = "cpu", **options: Any) -> Metric:
    if kind is MultiScaleStructuralSimilarityIndexMeasure:
        options = {"betas": TWO, **options}
    return kind(**{"data_range": 1.0, **options}).to(device)


EVERY = [
    *((StructuralSimilarityIndexMeasure, preset) for preset in SSIM_PRESETS),
    *((MultiScaleStructuralSimilarityIndexMeasure, preset) for preset in MS_PRESETS),
    (PeakSignalNoiseRatio, "skimage"),
]
each = pytest.mark.parametrize(
    ("kind", "preset"), EVERY, ids=lambda x: getattr(x, "__name__", str(x))
)
FUNCTIONS: dict[type[Metric], Any] = {
    StructuralSimilarityIndexMeasure: sf.structural_similarity_index_measure,
    MultiScaleStructuralSimilarityIndexMeasure: sf.multiscale_structural_similarity_index_measure,
    PeakSignalNoiseRatio: sf.peak_signal_noise_ratio,
}


def call(kind: type[Metric], preset: str, images: tuple[Tensor, Tensor], **options: Any) -> Tensor:
    if kind is MultiScaleStructuralSimilarityIndexMeasure:
        options = {"betas": TWO, **options}
    options = {"data_range": 1.0, **options}
    value: Tensor = FUNCTIONS[kind](*images, preset=preset, **options)
    return value


def by_library(
    kind: type[Metric], preset: str, images: tuple[Tensor, Tensor], top: float
) -> list[float]:
    """One value an image."""
    a, b = (x.double().cpu() for x in images)
    channels = [list(zip(x.numpy(), y.numpy(), strict=True)) for x, y in zip(a, b, strict=True)]
    if preset == "skimage":
        images_of = zip(a.numpy(), b.numpy(), strict=True)
        if kind is PeakSignalNoiseRatio:
            ratio = skimage.metrics.peak_signal_noise_ratio
            return [ratio(y, x, data_range=top) for x, y in images_of]
        ssim = skimage.metrics.structural_similarity
        return [ssim(x, y, data_range=top, channel_axis=0) for x, y in images_of]
    several_scales = kind is MultiScaleStructuralSimilarityIndexMeasure
    if preset == "wang":
        if several_scales:
            return [np.mean([wang_multiscale(*p, top, TWO) for p in pairs]) for pairs in channels]
        return [np.mean([wang(*p, top) for p in pairs]) for pairs in channels]
    if several_scales:  # It refuses fewer than 161 pixels; a test of its own has as many.
        want = call(kind, preset, (a, b), data_range=top, reduction="none")
        return want.tolist()
    win = formula("wang").taps.repeat(a.shape[1], 1, 1, 1)
    options = {"data_range": top, "size_average": False, "win": win}
    return pytorch_msssim.ssim(a, b, **options).tolist()


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8], ids=str)
def test_many_batches(kind: type[Metric], preset: str, dtype: torch.dtype, device: str) -> None:
    """Two rounds of `forward` and `update` in turns, with a reset in between."""
    top = range_of(dtype)
    metric = make(kind, device, preset=preset, data_range=top)
    for _ in range(2):
        values: list[float] = []
        for i, images in enumerate(batches(device, dtype)):
            want = by_library(kind, preset, images, top)
            values += want
            if i % 2:
                metric.update(*images)
            else:
                np.testing.assert_allclose(metric(*images).item(), np.mean(want), rtol=1e-6)
        np.testing.assert_allclose(metric.compute().item(), np.mean(values), rtol=1e-6)
        metric.reset()


def test_multiscale_of_pytorch_msssim(device: str) -> None:
    images = image_pair((2, 1, 163, 166), torch.float32, device)
    metric = make(MultiScaleStructuralSimilarityIndexMeasure, device, preset="pytorch-msssim")
    a, b = (x.double().cpu() for x in images)
    win = formula("wang").taps.repeat(1, 1, 1, 1)
    want = pytorch_msssim.ms_ssim(a, b, data_range=1.0, win=win, weights=list(TWO))
    np.testing.assert_allclose(metric(*images).item(), want.item(), rtol=1e-6)


@each
@pytest.mark.parametrize("reduction", ["sum", "none", None])
def test_reductions(kind: type[Metric], preset: str, reduction: Any, device: str) -> None:
    metric = make(kind, device, preset=preset, reduction=reduction)
    values = []
    for images in batches(device):
        want = call(kind, preset, images, reduction="none")
        values.append(want)
        got = metric(*images)
        # As for TorchMetrics' definition, one value alone is a scalar.
        torch.testing.assert_close(got, want.sum() if reduction == "sum" else want.squeeze())
    every = torch.cat(values)
    want = every.sum() if reduction == "sum" else every
    torch.testing.assert_close(metric.compute(), want)


@pytest.mark.parametrize("extra", ["return_full_image", "return_contrast_sensitivity"])
@pytest.mark.parametrize("preset", SSIM_PRESETS)
def test_extra_results(preset: str, extra: str, device: str) -> None:
    metric = make(StructuralSimilarityIndexMeasure, device, preset=preset, **{extra: True})
    same_size = [image_pair((2, 3, 24, 27), torch.float32, device, seed) for seed in (0, 1)]
    kept = []
    for images in same_size:
        want = call(StructuralSimilarityIndexMeasure, preset, images, **{extra: True})
        kept.append(want[1])
        for got, expected in zip(metric(*images), want, strict=True):
            torch.testing.assert_close(got, expected)
    torch.testing.assert_close(metric.compute()[1], torch.cat(kept))


@each
def test_copies_keep_the_preset(kind: type[Metric], preset: str, device: str) -> None:
    metric = make(kind, device, preset=preset)
    images = image_pair(SHAPES[0], torch.float32, device)
    want = metric(*images)
    assert repr(metric) == f"{kind.__name__}(preset={preset!r})"
    assert repr(make(kind)) == f"{kind.__name__}()"
    for other in (metric.clone(), copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        assert repr(other) == repr(metric)
        torch.testing.assert_close(other.compute(), want)
        other.reset()
        torch.testing.assert_close(other(*images), want)
    loaded = make(kind, device, preset=preset)
    metric.persistent(True)
    loaded.load_state_dict(metric.state_dict())
    torch.testing.assert_close(loaded.compute(), metric.compute())


@each
def test_gradient_of_forward(kind: type[Metric], preset: str, device: str) -> None:
    metric = make(kind, device, preset=preset)
    images = image_pair(SHAPES[0], torch.float32, device)
    grads = []
    for run in (lambda *x: metric(*x), lambda *x: call(kind, preset, x)):
        preds = images[0].clone().requires_grad_()
        run(preds, images[1]).backward()
        grads.append(preds.grad)
    torch.testing.assert_close(*grads)
    assert not metric.compute().requires_grad


class Negative(StructuralSimilarityIndexMeasure):
    """A loss of its own, made of what `compute` gives."""

    def compute(self) -> Any:
        return -super().compute()


class NegativeMs(MultiScaleStructuralSimilarityIndexMeasure):
    def compute(self) -> Any:
        return -super().compute()


class NegativePsnr(PeakSignalNoiseRatio):
    def compute(self) -> Any:
        return -super().compute()


@pytest.mark.parametrize("shape", [SHAPES[0], (2, 1, 22, 22, 23)], ids=str)
@pytest.mark.parametrize(
    ("subclass", "preset"),
    [(Negative, "wang"), (Negative, "skimage"), (NegativeMs, "wang"), (NegativePsnr, "skimage")],
)
def test_gradient_of_a_subclass(
    subclass: type[Metric], preset: str, shape: tuple[int, ...], device: str
) -> None:
    kind = subclass.__mro__[1]
    options = {"betas": TWO} if subclass is NegativeMs else {}
    metric = subclass(data_range=1.0, preset=preset, **options).to(device)
    images = pair(shape, torch.float32, device)
    grads = []
    for run in (lambda *x: metric(*x), lambda *x: -call(kind, preset, x)):
        preds = images[0].clone().requires_grad_()
        run(preds, images[1]).backward()
        grads.append(preds.grad)
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-6)


def test_psnr_of_volumes_and_bytes(device: str) -> None:
    volumes = pair((3, 2, 5, 9, 10), torch.float32, device)
    metric = PeakSignalNoiseRatio(1.0, preset="skimage").to(device)
    metric.update(*volumes)
    torch.testing.assert_close(
        metric(*volumes), sf.peak_signal_noise_ratio(*volumes, 1.0, preset="skimage")
    )
    bytes_alone = PeakSignalNoiseRatio(None, preset="skimage").to(device)
    images = image_pair((2, 3, 9, 10), torch.uint8, device)
    want = sf.peak_signal_noise_ratio(*images, None, preset="skimage")
    torch.testing.assert_close(bytes_alone(*images), want)
    with pytest.raises(ValueError, match="`data_range` with `preset='skimage'`"):
        bytes_alone.update(*volumes)
    with pytest.raises(ValueError, match="BxCxHxW"):
        metric.update(volumes[0][0, 0], volumes[1][0, 0])


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (StructuralSimilarityIndexMeasure, {"preset": "piq"}, "`preset` to be one of"),
        (StructuralSimilarityIndexMeasure, {"preset": "wang", "sigma": 2.0}, "sets the window"),
        (
            MultiScaleStructuralSimilarityIndexMeasure,
            {"preset": "skimage"},
            "scikit-image has no multi-scale SSIM",
        ),
        (
            MultiScaleStructuralSimilarityIndexMeasure,
            {"preset": "wang", "normalize": "simple"},
            "`normalize` to be left",
        ),
        (PeakSignalNoiseRatio, {"preset": "wang"}, "which have a PSNR"),
        (PeakSignalNoiseRatio, {"preset": "skimage", "dim": 1}, "`dim` to be left out"),
    ],
)
def test_refuses(kind: type[Metric], options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(data_range=1.0, **options)


def test_floats_need_a_range(device: str) -> None:
    images = image_pair(SHAPES[0], torch.float32, device)
    for kind, preset in EVERY[:-1]:
        with pytest.raises(ValueError, match="`data_range` with `preset="):
            make(kind, device, preset=preset, data_range=None).update(*images)
    with pytest.raises(TypeError, match="positional argument"):
        StructuralSimilarityIndexMeasure(*[None] * 10)


def places(metric: Metric) -> list[int]:
    return [x.data_ptr() for x in metric.metric_state.values() if isinstance(x, Tensor)]


@each
def test_states_stay_where_they_are(kind: type[Metric], preset: str, device: str) -> None:
    metric = make(kind, device, preset=preset)
    before = places(metric)
    dtypes = [x.dtype for x in metric.metric_state.values() if isinstance(x, Tensor)]
    for images in batches(device):
        metric(*images)
        metric.update(*images)
        assert places(metric) == before
    metric.reset()
    assert places(metric) == before
    assert [x.dtype for x in metric.metric_state.values() if isinstance(x, Tensor)] == dtypes


@pytest.mark.parametrize("step", ["update", "forward"])
@pytest.mark.parametrize(("kind", "preset"), EVERY[:-1], ids=lambda x: getattr(x, "__name__", x))
def test_compiles_once(kind: type[Metric], preset: str, step: str, device: str) -> None:
    """All but PSNR's, whose states are lists."""
    metric, plain = (make(kind, device, preset=preset) for _ in range(2))
    before = places(metric)
    images = image_pair(SHAPES[0], torch.float32, device)
    torch._dynamo.reset()
    run = torch.compile(getattr(metric, step), fullgraph=True, backend="aot_eager")
    with torch._dynamo.config.patch(error_on_recompile=True):
        for _ in range(3):
            run(*images)
            getattr(plain, step)(*images)
    torch.testing.assert_close(metric.metric_state, plain.metric_state)
    assert places(metric) == before


@pytest.mark.needs_cuda
@each
def test_steps_never_wait(kind: type[Metric], preset: str) -> None:
    metric = make(kind, "cuda", preset=preset)
    images = image_pair(SHAPES[0], torch.float32, "cuda")
    metric(*images)
    preds = images[0].clone().requires_grad_()
    torch.cuda.set_sync_debug_mode("error")
    try:
        metric(preds, images[1]).backward()
        metric.update(*images)
        metric.reset()
        metric.update(*images)
        metric.compute()
    finally:
        torch.cuda.set_sync_debug_mode("default")
