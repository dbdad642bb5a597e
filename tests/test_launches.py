"""How many pieces of work a call or a step puts on the GPU: README and docs/classes.md say it."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch

from syncfree.benchmarking.launches import count_launches
from syncfree.benchmarking.suites import classes
from syncfree.functional import (
    multiclass_accuracy,
    peak_signal_noise_ratio,
    structural_similarity_index_measure,
)

MORE_THAN_ONE = {
    # One for a large scale, two for all small ones.
    "MultiScaleStructuralSimilarityIndexMeasure-16x3x256x256-update": 3,
    "MultiScaleStructuralSimilarityIndexMeasure-16x3x256x256-forward": 3,
    # Values of many images are finished by a launch of their own, those of samples too.
    "PeakSignalNoiseRatio-16x3x256x256-per-image-update": 2,
    "PeakSignalNoiseRatio-16x3x256x256-per-image-forward": 2,
    "MulticlassAccuracy-8x19x64x64-samplewise-forward": 2,
}
STEPS = {
    name: make for name, make in classes.makers("cuda") if name.endswith(("-update", "-forward"))
}


@pytest.mark.needs_cuda
@pytest.mark.parametrize("name", STEPS)
def test_steps_of_classes(name: str) -> None:
    step = STEPS[name]().contenders["syncfree"]
    assert count_launches(step) == MORE_THAN_ONE.get(name, 1)


CALLS: dict[str, Callable[..., torch.Tensor]] = {
    "accuracy, micro": functools.partial(multiclass_accuracy, num_classes=1000, average="micro"),
    "accuracy, macro": functools.partial(multiclass_accuracy, num_classes=1000, average="macro"),
    "psnr": functools.partial(peak_signal_noise_ratio, data_range=1.0),
    "ssim": functools.partial(structural_similarity_index_measure, data_range=1.0),
}


@pytest.mark.needs_cuda
@pytest.mark.parametrize("name", CALLS)
def test_functions_are_one_launch(name: str) -> None:
    if name.startswith("accuracy"):
        batch = torch.randn(256, 1000, device="cuda"), torch.arange(256, device="cuda")
    else:
        batch = torch.rand(2, 16, 3, 256, 256, device="cuda").unbind()
    assert count_launches(lambda: CALLS[name](*batch)) == 1


def test_the_exceptions_are_steps() -> None:
    assert MORE_THAN_ONE.keys() < STEPS.keys()
