"""Options of the PSNR class that change after it was made; the gradient changes no value."""

from __future__ import annotations

import copy
import pickle
import warnings
from functools import partial
from typing import Any

import pytest
import torch
import torchmetrics.image as tm
from torch import Tensor

from cases import image_pair
from syncfree.image import (
    MultiScaleStructuralSimilarityIndexMeasure,
    PeakSignalNoiseRatio,
    StructuralSimilarityIndexMeasure,
)

OF_IMAGES = (1, 2, 3)
SHAPE = (2, 3, 16, 16)


def value_and_gradient(metric: Any, preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The batch's value, which is the same without a gradient."""
    leaf = preds.clone().requires_grad_()
    value = metric(leaf, target)
    value.sum().backward()
    torch.testing.assert_close(value.detach(), metric(preds, target), rtol=0, atol=0)
    assert leaf.grad is not None
    return value.detach(), leaf.grad


@pytest.mark.parametrize("dim", [None, OF_IMAGES])
def test_range(dim: Any, device: str) -> None:
    """TorchMetrics takes the batch's value with the one of the constructor."""
    preds, target = image_pair(SHAPE, torch.float32, device)

    def made_with(value_range: float) -> tuple[Tensor, Tensor]:
        theirs = tm.PeakSignalNoiseRatio(value_range, dim=dim).to(device)
        return value_and_gradient(theirs, preds, target)

    metric = PeakSignalNoiseRatio(1.0, dim=dim).to(device)
    metric.data_range = torch.tensor(2.0, device=device)
    torch.testing.assert_close(value_and_gradient(metric, preds, target), made_with(2.0))
    torch.testing.assert_close(metric.compute(), made_with(2.0)[0])
    metric.reset()
    torch.testing.assert_close(value_and_gradient(metric, preds, target), made_with(1.0))
    torch.testing.assert_close(metric.compute(), made_with(1.0)[0])


@pytest.mark.parametrize("dim", [None, OF_IMAGES])
def test_reset_after_a_checkpoint(dim: Any, device: str) -> None:
    """The range is again that of the constructor, for the warning about bytes too."""
    preds, target = image_pair(SHAPE, torch.uint8, device)
    saved, metric = (PeakSignalNoiseRatio(x, dim=dim).to(device) for x in (1.0, 255.0))
    saved.persistent(True)
    metric.load_state_dict(saved.state_dict(), strict=False)
    with pytest.warns(UserWarning, match="`data_range` is 1"):
        metric.update(preds, target)
    metric.reset()
    want = tm.PeakSignalNoiseRatio(255.0, dim=dim).to(device)(preds, target)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(metric(preds, target), want)


@pytest.mark.parametrize("reduction", ["sum", "none", None])
def test_reduction(reduction: Any, device: str) -> None:
    preds, target = image_pair(SHAPE, torch.float32, device)
    ours, theirs = (
        x(1.0, dim=OF_IMAGES).to(device) for x in (PeakSignalNoiseRatio, tm.PeakSignalNoiseRatio)
    )
    for metric in (ours, theirs):
        metric.reduction = reduction
    torch.testing.assert_close(
        value_and_gradient(ours, preds, target), value_and_gradient(theirs, preds, target)
    )
    torch.testing.assert_close(ours.compute(), theirs.compute())
    ours.reduction = "mean"
    for images in ((preds, target), (preds.clone().requires_grad_(), target)):
        with pytest.raises(ValueError, match="`reduction` to be one of"):
            ours(*images)


@pytest.mark.parametrize("dim", [None, OF_IMAGES])
@pytest.mark.parametrize("made", [1.0, (0.1, 0.9)])
@pytest.mark.parametrize("clamping_fn", [None, partial(torch.clamp, min=0.2, max=0.8)])
def test_clamping(clamping_fn: Any, made: Any, dim: Any, device: str) -> None:
    preds, target = image_pair(SHAPE, torch.float32, device)
    ours, theirs = (
        x(made, dim=dim).to(device) for x in (PeakSignalNoiseRatio, tm.PeakSignalNoiseRatio)
    )
    for metric in (ours, theirs):
        metric.clamping_fn = clamping_fn
    for metric in (ours, copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        theirs.reset()
        torch.testing.assert_close(
            value_and_gradient(metric, preds, target), value_and_gradient(theirs, preds, target)
        )
        torch.testing.assert_close(metric.compute(), theirs.compute())


@pytest.mark.parametrize(
    "clamping_fn",
    [
        torch.sigmoid,
        partial(torch.clamp, min=0.1),
        partial(torch.clamp, max=torch.zeros(3), min=0.1),
        partial(torch.clamp, min=0.8, max=0.2),
        "clamp",
    ],
    ids=["sigmoid", "one bound", "bounds of channels", "bounds in wrong order", "text"],
)
def test_other_functions_are_refused(clamping_fn: Any, device: str) -> None:
    preds, target = image_pair(SHAPE, torch.float32, device)
    metric = PeakSignalNoiseRatio((0.1, 0.9)).to(device)
    with pytest.raises((ValueError, TypeError), match=r"clamping_fn|data_range"):
        metric.clamping_fn = clamping_fn
    want = tm.PeakSignalNoiseRatio((0.1, 0.9)).to(device)(preds, target)
    torch.testing.assert_close(metric(preds, target), want)


def test_the_value_of_a_batch_may_be_written(device: str) -> None:
    preds, target = image_pair(SHAPE, torch.float32, device)
    metric = PeakSignalNoiseRatio(1.0).to(device)
    leaf = preds.clone().requires_grad_()
    value = metric(leaf, target)
    value += 1
    value.backward()
    torch.testing.assert_close(metric.compute(), value.detach() - 1)


def test_a_checkpoint_with_a_range_of_another_size_is_told_of() -> None:
    metric = PeakSignalNoiseRatio(data_range=1.0)
    metric.persistent(True)
    saved = {**metric.state_dict(), "data_range": torch.ones(2)}
    with pytest.raises(RuntimeError, match=r"data_range: expected one number, but .* \[2\]"):
        metric.load_state_dict(saved)
    assert metric.data_range == 1


@pytest.mark.parametrize("value", [2.0, 2, (0.0, 2.0), None], ids=str)
def test_a_range_set_later_is_a_tensor(value: object) -> None:
    metric = PeakSignalNoiseRatio(1.0)
    with pytest.raises(TypeError, match=r"`data_range` to be set to a tensor on cpu, .* but got "):
        metric.data_range = value  # type: ignore[assignment]
    assert metric.data_range.item() == 1.0


@pytest.mark.parametrize("method", ["update", "forward"])
def test_lists_of_results_are_not_added_up(method: str) -> None:
    images = torch.rand(2, 3, 24, 24)
    metrics = (
        PeakSignalNoiseRatio(1.0, dim=(1, 2, 3)),
        StructuralSimilarityIndexMeasure(data_range=1.0, reduction="none"),
        MultiScaleStructuralSimilarityIndexMeasure(
            data_range=1.0, betas=(0.5, 0.5), reduction="none"
        ),
    )
    for metric in metrics:
        if isinstance(metric, PeakSignalNoiseRatio):
            metric.dim = None
        else:
            metric.reduction = "elementwise_mean"
        with pytest.raises(
            TypeError, match=r"states that are tensors, but got a list.*a new metric"
        ):
            getattr(metric, method)(images, images)
