"""The MS-SSIM class against float64 and beside TorchMetrics'."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torchmetrics.image as tm

from cases import DTYPES, image_pair
from ms_ssim_reference import FIVE, product, reference_means
from similarity_classes import MS_SSIM, TWO, bounded, same_stream
from syncfree.image import MultiScaleStructuralSimilarityIndexMeasure


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_matches_float64(dtype: torch.dtype, device: str) -> None:
    metric = MS_SSIM.pair(device, **bounded(dtype))[0]
    values = []
    for preds, target in MS_SSIM.batches(device, dtype):
        want = product(reference_means(preds, target, len(TWO), **bounded(dtype)), TWO)
        np.testing.assert_allclose(metric(preds, target).item(), want.mean(), rtol=0, atol=5e-7)
        values.extend(want)
    np.testing.assert_allclose(metric.similarity.item(), sum(values), rtol=5e-7)
    np.testing.assert_allclose(metric.compute().item(), np.mean(values), rtol=5e-7)


def test_defaults(device: str) -> None:
    preds, target = image_pair((1, 1, 181, 176), torch.float32, device)
    metric = MultiScaleStructuralSimilarityIndexMeasure(data_range=1.0).to(device)
    want = product(reference_means(preds, target, 5), FIVE)
    np.testing.assert_allclose(metric(preds, target).item(), want[0], rtol=0, atol=5e-7)


@pytest.mark.parametrize("normalize", ["relu", "simple", None])
@pytest.mark.parametrize("betas", [TWO, (1.5,)], ids=str)
@pytest.mark.parametrize("reduction", ["elementwise_mean", "none"])
def test_exponents(normalize: Any, betas: tuple, reduction: str, device: str) -> None:
    """Negatives of each other have contrast below 0, whose power is NaN without normalization."""
    pair = MS_SSIM.pair(device, normalize=normalize, betas=betas, reduction=reduction)
    batches = MS_SSIM.batches(device, torch.float64)
    same_stream(*pair, batches)
    negatives = [(preds, 1 - preds) for preds, _ in batches]
    same_stream(*pair, negatives)


BAD_OPTIONS: list[dict[str, Any]] = [
    {"kernel_size": 1.5},
    {"kernel_size": (3,)},
    {"kernel_size": (3, 5, 7, 9)},
    {"kernel_size": (3, 5.0)},
    {"betas": [0.5, 0.5]},
    {"betas": (1, 2)},
    {"normalize": "sigmoid"},
]


@pytest.mark.parametrize("options", BAD_OPTIONS, ids=str)
def test_bad_options_raise_torchmetrics_words(options: dict) -> None:
    with pytest.raises(ValueError, match="Argument") as theirs:
        tm.MultiScaleStructuralSimilarityIndexMeasure(**options)
    with pytest.raises(ValueError, match="Argument") as ours:
        MultiScaleStructuralSimilarityIndexMeasure(**options)
    assert str(ours.value) == str(theirs.value)


def test_images_too_small_for_the_scales(device: str) -> None:
    preds, target = MS_SSIM.batches(device)[0]
    for metric in MS_SSIM.pair(device, betas=FIVE):
        with pytest.raises(ValueError, match="larger than or equal to 32"):
            metric.update(preds, target)
        assert metric.similarity == 0


@pytest.mark.parametrize("betas", [[0.5, 0.5], (1, 1), (np.float32(0.4), 0.6)])
def test_exponents_given_later_may_be_of_other_types(betas: Any, device: str) -> None:
    pair = MS_SSIM.pair(device)
    for metric in pair:
        metric.betas = betas
    same_stream(*pair, MS_SSIM.batches(device, torch.float32))
