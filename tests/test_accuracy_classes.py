"""The accuracy classes beside TorchMetrics' over all options, and batches that do not fit."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torchmetrics.classification as tm
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torchmetrics import Metric

from accuracy_cases import make_elements, make_labels
from deferred_cases import labels
from syncfree import classification

Batch = tuple[Tensor, Tensor]

AVERAGES = st.sampled_from(["micro", "macro", "weighted", "none", None])
SHAPES = st.lists(st.integers(1, 4), max_size=2)
FLOATS = st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16])


def pair(name: str, options: dict[str, Any], device: str) -> tuple[Metric, Metric]:
    ours, theirs = (getattr(module, name)(**options) for module in (classification, tm))
    return ours.to(device), theirs.to(device)


def follow(name: str, options: dict[str, Any], batches: list[Batch], device: str) -> None:
    """The same stream through both: batch values, states, and what is left at the end."""
    ours, theirs = pair(name, options, device)
    for i, (preds, target) in enumerate(batches):
        if i % 3 == 1:
            ours.update(preds, target)
            theirs.update(preds, target)
        else:
            torch.testing.assert_close(
                ours(preds, target), theirs(preds, target), rtol=1e-6, atol=1e-7
            )
    for state, want in theirs.metric_state.items():
        torch.testing.assert_close(getattr(ours, state), want, rtol=0, atol=0)
    torch.testing.assert_close(ours.compute(), theirs.compute(), rtol=1e-6, atol=1e-7)


def draw_shared(data: st.DataObject, samplewise: bool, ignore: st.SearchStrategy) -> dict[str, Any]:
    return {
        "multidim_average": "samplewise" if samplewise else "global",
        "ignore_index": data.draw(ignore, "ignore_index"),
        "validate_args": data.draw(st.booleans(), "validate_args"),
    }


def draw_sizes(data: st.DataObject, least: int) -> list[int]:
    return data.draw(st.lists(st.integers(least, 9), min_size=1, max_size=5), "sizes")


@pytest.mark.fuzz
@given(data=st.data())
def test_multiclass_as_torchmetrics(data: st.DataObject, device: str) -> None:
    torch.manual_seed(data.draw(st.integers(0, 2**30), "seed"))
    classes = data.draw(st.integers(2, 40), "classes")
    samplewise = data.draw(st.booleans(), "samplewise")
    shape = data.draw(SHAPES, "shape") or ([2] if samplewise else [])
    with_scores = data.draw(st.booleans(), "scores")
    top_k = data.draw(st.integers(1, classes), "top_k") if with_scores else 1
    dtype = data.draw(FLOATS, "dtype")
    options = {
        "num_classes": classes,
        "top_k": top_k,
        "average": data.draw(AVERAGES, "average"),
        **draw_shared(data, samplewise, st.none() | st.integers(0, classes - 1) | st.just(-100)),
    }
    batches = []
    for n in draw_sizes(data, 1):
        target = make_labels((n, *shape), classes, options["ignore_index"], device)
        if with_scores:  # distinct ones, as topk does not say which of equal ones it takes
            preds = torch.rand(n, classes, *shape).argsort(1).to(dtype).to(device)
            hit = torch.rand(target.shape, device=device) < 0.4
            target = torch.where(hit, preds.argmax(1), target)
        else:
            preds = make_labels((n, *shape), classes, None, device)
        batches.append((preds, target))
    follow("MulticlassAccuracy", options, batches, device)


@pytest.mark.fuzz
@given(data=st.data())
def test_binary_as_torchmetrics(data: st.DataObject, device: str) -> None:
    torch.manual_seed(data.draw(st.integers(0, 2**30), "seed"))
    samplewise = data.draw(st.booleans(), "samplewise")
    shape = data.draw(SHAPES, "shape") or ([2] if samplewise else [])
    kind = data.draw(st.sampled_from(["labels", "probabilities", "logits"]), "kind")
    dtype = torch.int64 if kind == "labels" else data.draw(FLOATS, "dtype")
    options = {
        "threshold": data.draw(st.floats(0, 1), "threshold"),
        **draw_shared(data, samplewise, st.sampled_from([None, 0, 1, -1])),
    }
    batches = [
        (
            make_elements(kind, dtype, (n, *shape), device),
            make_labels((n, *shape), 2, options["ignore_index"], device),
        )
        for n in draw_sizes(data, 2 if samplewise else 1)  # of one TorchMetrics drops a dimension
    ]
    follow("BinaryAccuracy", options, batches, device)


@pytest.mark.fuzz
@given(data=st.data())
def test_multilabel_as_torchmetrics(data: st.DataObject, device: str) -> None:
    torch.manual_seed(data.draw(st.integers(0, 2**30), "seed"))
    samplewise = data.draw(st.booleans(), "samplewise")
    labels = data.draw(st.integers(2, 9), "labels")
    shape = [labels, *(data.draw(SHAPES, "shape") or ([2] if samplewise else []))]
    kind = data.draw(st.sampled_from(["labels", "probabilities", "logits"]), "kind")
    dtype = torch.int64 if kind == "labels" else data.draw(FLOATS, "dtype")
    options = {
        "num_labels": labels,
        "threshold": data.draw(st.floats(0, 1), "threshold"),
        "average": data.draw(AVERAGES, "average"),
        **draw_shared(data, samplewise, st.sampled_from([None, 0, 1, -1])),
    }
    batches = [
        (
            make_elements(kind, dtype, (n, *shape), device),
            make_labels((n, *shape), 2, options["ignore_index"], device),
        )
        for n in draw_sizes(data, 2 if samplewise else 1)
    ]
    follow("MultilabelAccuracy", options, batches, device)


def test_inputs_that_do_not_fit_change_nothing(device: str) -> None:
    metric = classification.MulticlassAccuracy(5, average="micro").to(device)
    preds, target = torch.rand(8, 5, device=device), torch.zeros(8, device=device).long()
    metric.update(preds, target)
    for call in (metric, metric.update):
        with pytest.raises(TypeError, match="`preds` to be a tensor, but got ndarray"):
            call(np.zeros((8, 5)), target)
        with pytest.raises(ValueError, match=r"equal to number of classes, but got shape"):
            call(preds[:, :4], target)
        with pytest.raises(RuntimeError, match="on the same device"):
            call(preds, target.to("meta"))
        with pytest.raises(RuntimeError, match="same device"):
            call(preds.to("meta"), target.to("meta"))
        with pytest.raises(TypeError):
            call(preds)
    assert metric.update_count == 1
    assert sum(int(state) for state in metric.metric_state.values()) == 40


def test_no_gradient_and_none_asked_for(device: str) -> None:
    metric = classification.MulticlassAccuracy(5).to(device)
    preds = torch.rand(8, 5, device=device, requires_grad=True)
    value = metric(preds, preds.argmax(1))
    assert value.item() == 1
    assert not value.requires_grad


def test_cpu_raises_in_the_call_itself() -> None:
    for average in ("micro", "macro"):
        metric = classification.MulticlassAccuracy(5, average=average)
        metric.update(*labels("cpu"))
        before = copy.deepcopy(metric.metric_state)
        for call in (metric, metric.update):
            with pytest.raises(RuntimeError, match=r"7 at flat index 3, the first of 2.*\[0, 4\]"):
                call(*labels("cpu", 7, -1))
        torch.testing.assert_close(metric.metric_state, before)
        assert metric.compute().item() == 1
        assert metric.update_count == 1


@pytest.mark.parametrize("samplewise", [False, True])
def test_empty_batches(samplewise: bool, device: str) -> None:
    mode = "samplewise" if samplewise else "global"
    empty = torch.zeros(0, 4, device=device).long()
    for metric in (
        classification.BinaryAccuracy(multidim_average=mode).to(device),
        classification.MulticlassAccuracy(3, multidim_average=mode).to(device),
    ):
        value = metric(empty, empty)
        assert value.shape == ((0,) if samplewise else ())
        assert not value.any()
        metric.update(empty, empty)
        assert not metric.compute().any()
