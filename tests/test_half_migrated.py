"""Programs of which a part goes on using TorchMetrics, or its helpers under our names."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
import torchmetrics

import syncfree
from class_cases import CASES, ClassCase


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("functional.image.ssim", "_ssim_update"),
        ("functional.image.ssim", "_multiscale_ssim_update"),
        ("functional.image.psnr", "_psnr_compute"),
        ("functional.classification.accuracy", "_accuracy_reduce"),
        ("functional.classification.stat_scores", "_binary_stat_scores_update"),
        ("image.ssim", "_ssim_check_inputs"),
        ("image.psnr", "_psnr_update"),
        ("classification.accuracy", "MulticlassStatScores"),
    ],
)
def test_helpers_are_torchmetrics_own(module: str, name: str) -> None:
    ours, theirs = (
        import_module(f"{library}.{module}") for library in ("syncfree", "torchmetrics")
    )
    assert getattr(ours, name) is getattr(theirs, name)


def test_what_nobody_has() -> None:
    for module in (syncfree.functional.image.ssim, syncfree.image.psnr):
        with pytest.raises(AttributeError, match="has no attribute '_nobody'"):
            _ = module._nobody
        assert not hasattr(module, "__path__")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_states_of_theirs_are_merged(case: ClassCase, device: str) -> None:
    ours, theirs = case.pair(device)
    first, second = (list(case.batches(device, seed)) for seed in (0, 1))
    for batch in first:
        ours.update(*batch)
    for batch in second:
        theirs.update(*batch)
    ours.merge_state(theirs)
    for batch in first:
        theirs.update(*batch)
    torch.testing.assert_close(
        torch.as_tensor(ours.compute()).sort().values,
        torch.as_tensor(theirs.compute()).sort().values,
        rtol=1e-5,
        atol=1e-6,
        equal_nan=True,
    )


def test_states_of_another_class_are_not() -> None:
    metric = syncfree.image.PeakSignalNoiseRatio(data_range=1.0)
    with pytest.raises(ValueError, match="to be an instance of PeakSignalNoiseRatio"):
        metric.merge_state(torchmetrics.image.StructuralSimilarityIndexMeasure())

    class Mine(syncfree.image.PeakSignalNoiseRatio):
        """May have states of its own."""

    with pytest.raises(ValueError, match="to be an instance of Mine"):
        Mine(data_range=1.0).merge_state(torchmetrics.image.PeakSignalNoiseRatio(data_range=1.0))
