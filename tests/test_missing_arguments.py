"""What a call that lacks an argument, or has one too many, is told."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syncfree
import syncfree.functional as sf
from syncfree import classification, image

METRICS = [
    (classification.BinaryAccuracy, {}),
    (classification.MulticlassAccuracy, {"num_classes": 3}),
    (classification.MulticlassAccuracy, {"num_classes": 3, "multidim_average": "samplewise"}),
    (classification.MultilabelAccuracy, {"num_labels": 3}),
    (image.PeakSignalNoiseRatio, {"data_range": 1.0}),
    (image.StructuralSimilarityIndexMeasure, {}),
    (image.MultiScaleStructuralSimilarityIndexMeasure, {}),
]


@pytest.mark.parametrize("method", ["forward", "update"])
@pytest.mark.parametrize(("cls", "options"), METRICS)
def test_it_names_the_call_of_the_metric(cls: Any, options: dict[str, Any], method: str) -> None:
    metric = cls(**options)
    call = metric if method == "forward" else metric.update
    name = rf"^{cls.__name__}\.{method}\(\)"
    batch = torch.rand(2, 3)
    with pytest.raises(TypeError, match=f"{name} missing 1 required .*: 'target'"):
        call(batch)
    with pytest.raises(TypeError, match=f"{name} takes 3 positional arguments but 4 were given"):
        call(batch, batch, batch)
    with pytest.raises(TypeError, match=f"{name} got an unexpected keyword argument 'labels'"):
        call(batch, labels=batch)


def test_in_a_collection_and_a_subclass() -> None:
    class Own(classification.MulticlassAccuracy):
        pass

    with pytest.raises(TypeError, match=r"^MulticlassAccuracy\.forward\(\) missing"):
        Own(3)(torch.rand(2, 3))
    both = syncfree.MetricCollection({"own": Own(3), "ours": classification.MulticlassAccuracy(3)})
    with pytest.raises(TypeError, match=r"^MulticlassAccuracy\.update\(\) missing"):
        both.update(torch.rand(2, 3))
    assert both.compute_groups == {0: ["ours", "own"]}  # by name


@pytest.mark.parametrize(
    "call",
    [
        image.PeakSignalNoiseRatio,
        lambda: sf.peak_signal_noise_ratio(torch.rand(3), torch.rand(3)),
        lambda: sf.image_quality(torch.rand(1, 3, 16, 16), torch.rand(1, 3, 16, 16), None),
    ],
)
def test_psnr_without_a_range_says_which_to_pass(call: Any) -> None:
    with pytest.raises(
        TypeError, match=r"got None or nothing\. Pass 1\.0 for images of floats .* 255\.0"
    ):
        call()
