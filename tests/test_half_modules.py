"""Metrics inside of a module that goes to half precision keep the precision of their states."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchmetrics import Metric

from syncfree import image

METRICS: dict[str, Any] = {
    "psnr": lambda: image.PeakSignalNoiseRatio(1.0),
    "psnr by image": lambda: image.PeakSignalNoiseRatio(1.0, dim=(1, 2, 3)),
    "ssim": lambda: image.StructuralSimilarityIndexMeasure(data_range=1.0),
    "ms-ssim": lambda: image.MultiScaleStructuralSimilarityIndexMeasure(
        data_range=1.0, kernel_size=3, betas=(0.5, 0.5)
    ),
}


def images(device: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(8, 3, 16, 16, generator=generator)
    preds = (target + 0.1 * torch.randn(target.shape, generator=generator)).clamp(0, 1)
    return preds.bfloat16().to(device), target.bfloat16().to(device)


def dtypes(metric: Metric) -> set[torch.dtype]:
    states = [*metric.metric_state.values(), *metric._defaults.values()]
    pieces = [
        piece for state in states for piece in (state if isinstance(state, list) else [state])
    ]
    return {piece.dtype for piece in pieces if piece.is_floating_point()}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("make", METRICS.values(), ids=METRICS)
def test_values_of_many_batches(make: Any, dtype: torch.dtype, device: str) -> None:
    """SSIM of 0.945 was 1.0 after a thousand batches, as the number of images had ended."""
    pair = images(device)
    converted, kept = make().to(device), make().to(device)
    converted.update(*pair)  # of lists, what they hold is converted
    kept.update(*pair)
    module = nn.ModuleDict({"metric": converted, "layer": nn.Linear(2, 2)}).to(dtype)
    assert next(module["layer"].parameters()).dtype == dtype
    for _ in range(300):
        converted.update(*pair)
        kept.update(*pair)
    assert torch.equal(converted.compute(), kept.compute())
    assert converted.compute().dtype == torch.float32
    converted.reset()
    converted.update(*pair)
    assert dtypes(converted) == dtypes(kept) == {torch.float32}


@pytest.mark.parametrize("make", METRICS.values(), ids=METRICS)
def test_values_that_are_there_already(make: Any, device: str) -> None:
    metric = make().to(device)
    value, mean = metric(*images(device)), metric.compute()
    nn.ModuleDict({"metric": metric}).to(torch.bfloat16)
    assert torch.equal(metric.compute(), mean)
    assert metric.compute().dtype == torch.float32
    assert torch.equal(metric._forward_cache, value)
    assert metric.dtype == torch.float32
    assert metric.set_dtype(torch.bfloat16).dtype == torch.bfloat16
    assert metric.to(torch.float16).dtype == torch.float16  # no narrower than it was


@pytest.mark.parametrize("make", METRICS.values(), ids=METRICS)
def test_metrics_made_where_the_default_is_half(make: Any, device: str) -> None:
    """As in Lightning's `configure_model` with `precision="bf16-true"`."""
    expected = make().to(device)
    torch.set_default_dtype(torch.bfloat16)
    try:
        metric = make().to(device)
    finally:
        torch.set_default_dtype(torch.float32)
    for _ in range(300):
        expected.update(*images(device))
        metric.update(*images(device))
    assert torch.equal(metric.compute(), expected.compute())
    assert dtypes(metric) == {torch.float32}


def test_a_range_that_half_would_round() -> None:
    torch.set_default_dtype(torch.bfloat16)
    try:
        metric = image.PeakSignalNoiseRatio((0.1, 0.97))
    finally:
        torch.set_default_dtype(torch.float32)
    assert metric.data_range == torch.tensor(0.97 - 0.1)


@pytest.mark.parametrize("make", METRICS.values(), ids=METRICS)
def test_other_conversions(make: Any, device: str) -> None:
    metric = make().to(device)
    assert dtypes(metric.to(torch.float64)) <= {torch.float64}
    assert dtypes(metric.to(torch.float32)) <= {torch.float32}
    assert dtypes(metric.to("meta", torch.float16)) <= {torch.float32}
    assert metric.device.type == "meta"
    metric = make().to(device)
    assert dtypes(metric.set_dtype(torch.float16)) <= {torch.float16}
    assert dtypes(metric.to(torch.bfloat16)) <= {torch.bfloat16}  # no narrower than it was
