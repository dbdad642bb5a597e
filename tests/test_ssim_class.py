"""The SSIM class: its extra results, against float64 and beside TorchMetrics'."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from cases import DTYPES
from similarity_classes import SSIM, bounded, same, same_stream
from ssim_reference import Reference, Window
from syncfree.image import StructuralSimilarityIndexMeasure

EXTRAS = ["return_full_image", "return_contrast_sensitivity"]
each_extra = pytest.mark.parametrize("extra", EXTRAS)
SAME_SIZE = [(2, 3, 20, 24), (1, 3, 20, 24), (3, 3, 20, 24)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("window", [Window(), Window(False, kernel_size=7)], ids=str)
def test_matches_float64(window: Window, dtype: torch.dtype, device: str) -> None:
    metric = StructuralSimilarityIndexMeasure(**bounded(dtype), **window.options).to(device)
    values = []
    for preds, target in SSIM.batches(device, dtype):
        want = Reference.of(preds, target, window, **bounded(dtype)).values
        np.testing.assert_allclose(metric(preds, target).item(), want.mean(), rtol=0, atol=2e-7)
        values.extend(want)
    np.testing.assert_allclose(metric.similarity.item(), sum(values), rtol=2e-7)
    np.testing.assert_allclose(metric.compute().item(), np.mean(values), rtol=2e-7)


def test_range_of_the_data_is_that_of_each_batch(device: str) -> None:
    metric = StructuralSimilarityIndexMeasure().to(device)
    values = []
    for i, (preds, target) in enumerate(SSIM.batches(device)):
        scaled = (1 + i) * preds, (1 + i) * target
        metric.update(*scaled)
        values.extend(Reference.of(*scaled, data_range=None).values)
    np.testing.assert_allclose(metric.compute().item(), np.mean(values), rtol=2e-7)


@each_extra
@pytest.mark.parametrize("reduction", ["elementwise_mean", "sum", "none", None])
@pytest.mark.parametrize("data_range", [1.0, (0.1, 0.8), None], ids=str)
def test_extra_results(extra: str, reduction: Any, data_range: Any, device: str) -> None:
    pair = SSIM.pair(device, reduction=reduction, data_range=data_range, **{extra: True})
    # In float64: TorchMetrics' float32 maps are off by up to 1e-3.
    same_stream(*pair, SSIM.batches(device, torch.float64, SAME_SIZE))


@each_extra
def test_extra_results_of_single_images(extra: str, device: str) -> None:
    """TorchMetrics makes scalars of results of one element."""
    for reduction in ("elementwise_mean", "none"):
        pair = SSIM.pair(device, reduction=reduction, **{extra: True})
        same_stream(*pair, SSIM.batches(device, torch.float64, [(1, 3, 20, 24)]))


@each_extra
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_of_extra_results(extra: str, dtype: torch.dtype, device: str) -> None:
    """The value is of the state's dtype, the extra result of the images'."""
    metric = SSIM.pair(device, **bounded(dtype), **{extra: True})[0]
    preds, target = SSIM.batches(device, dtype)[0]
    value, more = metric(preds, target)
    wide = torch.float32 if dtype == torch.uint8 else dtype
    assert (value.dtype, more.dtype) == (torch.float32, wide)
    reference = Reference.of(preds, target, **bounded(dtype))
    want = reference.map if extra == "return_full_image" else reference.contrast
    half = 0.0 if wide in (torch.float32, torch.float64) else torch.finfo(wide).eps / 2
    np.testing.assert_allclose(more.double().cpu(), want, rtol=half, atol=1e-6)
    np.testing.assert_allclose(value.item(), reference.values.mean(), rtol=0, atol=2e-7)


@each_extra
@pytest.mark.parametrize("reduction", ["elementwise_mean", "sum", "none"])
def test_gradients_of_extra_results(extra: str, reduction: str, device: str) -> None:
    batch = SSIM.batches(device, torch.float64)[0]
    gradients = []
    for metric in SSIM.pair(device, reduction=reduction, **{extra: True}):
        leaves = [x.clone().requires_grad_() for x in batch]
        value, more = metric(*leaves)
        weights = torch.linspace(0, 1, more.numel(), device=device).reshape(more.shape)
        (value.sum() + (weights * more).sum()).backward()
        gradients.append([leaf.grad for leaf in leaves])
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-9)


@each_extra
def test_kept_results_are_the_metrics_own(extra: str, device: str) -> None:
    metric = SSIM.pair(device, **{extra: True})[0]
    preds, target = SSIM.batches(device)[0]
    _, more = metric(preds.clone().requires_grad_(), target)
    assert not metric.image_return[0].requires_grad
    kept = metric.image_return[0].clone()
    more.detach().mul_(5)
    assert torch.equal(metric.image_return[0], kept)


@each_extra
def test_extra_results_of_two_processes(extra: str, device: str) -> None:
    """TorchMetrics' `compute` refuses states that were brought together."""
    metric = StructuralSimilarityIndexMeasure(
        data_range=1.0,
        dist_sync_fn=lambda state, group: [state, state.clone()],
        distributed_available_fn=lambda: True,
        **{extra: True},
    ).to(device)
    alone = SSIM.pair(device, **{extra: True})[0]
    for batch in SSIM.batches(device)[:2]:
        metric.update(*batch)
        alone.update(*batch)
    value, more = alone.compute()
    same(metric.compute(), (value, torch.cat([more, more])))
    assert len(metric.image_return) == 2


def test_both_extra_results_are_refused() -> None:
    with pytest.raises(ValueError, match="are mutually exclusive"):
        StructuralSimilarityIndexMeasure(return_full_image=True, return_contrast_sensitivity=True)
