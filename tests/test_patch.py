"""Our metrics in TorchMetrics' place, and TorchMetrics' own back in it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torchmetrics
import torchmetrics.functional.image.ssim

import syncfree
from syncfree import patch_torchmetrics

CLASSES = ["BinaryAccuracy", "MulticlassAccuracy", "MultilabelAccuracy", "Accuracy"]


def everything() -> dict[tuple[str, str], Any]:
    """What every name of every module of TorchMetrics stands for."""
    return {
        (path, name): value
        for path, module in list(sys.modules.items())
        if path.partition(".")[0] == "torchmetrics"
        for name, value in vars(module).items()
        if not name.startswith("__")
    }


@pytest.fixture(autouse=True)
def _leaves_no_trace() -> Iterator[None]:
    syncfree.Accuracy, syncfree.MetricCollection, syncfree.image  # noqa: B018
    before = everything()
    yield
    after = everything()
    assert before.keys() == after.keys()
    assert [place for place in before if before[place] is not after[place]] == []


def test_every_site_has_ours() -> None:
    with patch_torchmetrics():
        for module in (torchmetrics.classification, torchmetrics.classification.accuracy):
            for name in CLASSES:
                assert getattr(module, name) is getattr(syncfree.classification, name)
        for place in (torchmetrics, torchmetrics.image, torchmetrics.image.psnr):
            assert place.PeakSignalNoiseRatio is syncfree.PeakSignalNoiseRatio
        for place in (torchmetrics.functional, torchmetrics.functional.image):
            for name in ("peak_signal_noise_ratio", "structural_similarity_index_measure"):
                assert getattr(place, name) is getattr(syncfree.functional, name)
        place = sys.modules["torchmetrics.functional.classification.accuracy"]
        assert place.multiclass_accuracy is syncfree.functional.multiclass_accuracy
        assert torchmetrics.MetricCollection is syncfree.MetricCollection
        assert torchmetrics.functional.image.ssim.__name__ == "torchmetrics.functional.image.ssim"


def test_code_that_cannot_be_edited() -> None:
    code = """
from torchmetrics import Accuracy, MetricCollection
from torchmetrics.classification import MulticlassF1Score
def evaluate(preds, target):
    metrics = MetricCollection([Accuracy(task="multiclass", num_classes=4), MulticlassF1Score(4)])
    metrics.update(preds, target)
    return metrics, metrics.compute()
"""
    inputs = torch.randn(32, 4), torch.randint(0, 4, (32,))
    theirs: dict[str, Any] = {}
    exec(code, theirs)
    ours: dict[str, Any] = {}
    with patch_torchmetrics():
        exec(code, ours)
    metrics, values = ours["evaluate"](*inputs)
    assert type(metrics) is syncfree.MetricCollection
    assert type(metrics["MulticlassAccuracy"]) is syncfree.MulticlassAccuracy
    originals, expected = theirs["evaluate"](*inputs)
    assert type(originals["MulticlassAccuracy"]) is torchmetrics.classification.MulticlassAccuracy
    torch.testing.assert_close(values, expected)


def test_nested_in_any_order() -> None:
    original = torchmetrics.Accuracy
    first, second = patch_torchmetrics(), patch_torchmetrics()
    first.undo()
    first.undo()
    assert torchmetrics.Accuracy is syncfree.Accuracy
    with patch_torchmetrics():
        pass
    assert torchmetrics.Accuracy is syncfree.Accuracy
    second.undo()
    assert torchmetrics.Accuracy is original
    with pytest.raises(KeyError), patch_torchmetrics():
        raise KeyError
    assert torchmetrics.Accuracy is original


def test_what_others_put_there_stays() -> None:
    original = torchmetrics.Accuracy
    try:
        with patch_torchmetrics():
            torchmetrics.Accuracy = int
        assert torchmetrics.Accuracy is int
    finally:
        torchmetrics.Accuracy = original


def test_objects_from_before() -> None:
    """They go on working: beside ours, in collections, in wrappers that ask what they are."""
    metric = torchmetrics.classification.BinaryAccuracy()
    inner = torchmetrics.MetricCollection([torchmetrics.classification.BinaryF1Score()])
    inputs = torch.rand(16), torch.randint(0, 2, (16,))
    with patch_torchmetrics():
        assert isinstance(syncfree.BinaryAccuracy(), type(metric))
        both = torchmetrics.MetricCollection([metric, inner])
        tracker = torchmetrics.MetricTracker(inner, maximize=True)
        tracker.increment()
        tracker.update(*inputs)
        assert tracker.compute().keys() == {"BinaryF1Score"}
        both.update(*inputs)
        assert both.compute().keys() == {"BinaryAccuracy", "BinaryF1Score"}
        with pytest.raises(pickle.PicklingError):
            pickle.dumps(metric)
    pickle.loads(pickle.dumps(metric))


def test_ours_rest_on_torchmetrics_own_classes() -> None:
    """Also where the patch is the first to import them."""
    code = """
import torchmetrics
original = torchmetrics.classification.MulticlassAccuracy
import syncfree
patch = syncfree.patch_torchmetrics()
assert original in syncfree.MulticlassAccuracy.__mro__
assert torchmetrics.classification.MulticlassAccuracy is syncfree.MulticlassAccuracy
assert syncfree.F1Score is torchmetrics.F1Score
patch.undo()
assert torchmetrics.classification.MulticlassAccuracy is original
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
