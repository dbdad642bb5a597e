"""Metrics and collections that are timed stay what they are."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
import torchmetrics as tm

import syncfree
import syncfree.classification as sc
from syncfree import EventTimer, timed

METRICS = [
    (syncfree.PeakSignalNoiseRatio, {"data_range": 1.0}),
    (tm.image.PeakSignalNoiseRatio, {"data_range": 1.0}),
    (tm.MeanSquaredError, {}),
]


@pytest.mark.parametrize(("cls", "options"), METRICS, ids=lambda v: getattr(v, "__module__", ""))
def test_a_timed_metric_is_the_metric(
    cls: Any, options: dict, timer: EventTimer, device: str
) -> None:
    metric, plain = cls(**options).to(device), cls(**options).to(device)
    assert timed(metric, timer=timer) is metric
    assert isinstance(metric, cls)
    assert (type(metric).__name__, type(metric).__module__) == (cls.__name__, cls.__module__)
    assert repr(metric) == repr(plain)
    batches = [torch.rand(2, 3, 8, 8, device=device) for _ in range(4)]
    for each in (metric, plain):
        each(batches[0], batches[1])
        each.update(batches[2], batches[3])
    assert torch.equal(metric.compute(), plain.compute())
    assert metric.metric_state.keys() == plain.metric_state.keys()
    assert metric.update_count == plain.update_count == 2

    for copied in (copy.deepcopy(metric), pickle.loads(pickle.dumps(metric)), metric.clone()):
        assert type(copied) is cls
        copied._computed = None
        assert torch.equal(copied.compute(), plain.compute())
    timer.wait()
    summary = timer.summary()
    assert summary[f"{cls.__name__}.forward"].count == 1
    assert summary[f"{cls.__name__}.compute"].count >= 1
    assert summary[f"{cls.__name__}.update"].count >= 1

    other = EventTimer(device)
    other.wrap(metric)  # not timed twice
    metric.reset()
    metric.update(batches[0], batches[1])
    other.wait()
    assert other.summary()[f"{cls.__name__}.update"].count == 1
    with pytest.raises(KeyError):
        timer.summary()["nothing"]


def test_a_timed_metric_merges_untimed_ones(timer: EventTimer) -> None:
    timed, plain = timer.wrap(tm.SumMetric()), tm.SumMetric()
    timed.update(2.0)
    plain.update(3.0)
    timed.merge_state(plain)
    timed.merge_state(plain.metric_state)
    assert timed.compute() == 8
    with pytest.raises(ValueError, match="instance of SumMetric"):
        timed.merge_state(tm.MaxMetric())
    assert type(timed) is not tm.SumMetric  # timed still


@pytest.mark.parametrize("library", [syncfree, tm])
def test_a_timed_collection(library: Any, timer: EventTimer, device: str) -> None:
    def make() -> Any:
        members = [sc.MulticlassAccuracy(3), tm.classification.MulticlassF1Score(3)]
        return library.MetricCollection(members).to(device)

    collection, plain = timer.wrap(make()), make()
    assert isinstance(collection, tm.MetricCollection)
    scores, target = torch.randn(8, 3, device=device), torch.randint(0, 3, (8,), device=device)
    for each in (collection, plain):
        each(scores, target)
        each.update(scores, target)
    torch.testing.assert_close(collection.compute(), plain.compute())
    timer.wait()
    for method in ("forward", "update", "compute"):
        assert timer.summary()[f"MetricCollection.{method}"].count == 1
    clone = collection.clone(prefix="val/")
    assert type(clone) is library.MetricCollection
    assert set(clone.compute()) == {f"val/{name}" for name in plain.compute()}


@pytest.mark.parametrize(
    ("target", "got"), [(3, "int"), (None, "NoneType"), ("name", "str"), (int, "the class int")]
)
def test_wrap_names_itself_where_there_is_nothing_to_time(
    target: Any, got: str, timer: EventTimer
) -> None:
    expected = f"^EventTimer.wrap takes a function or a metric, but got {got}$"
    with pytest.raises(TypeError, match=expected):
        timer.wrap(target)

    def pieces() -> Any:
        yield

    with pytest.raises(TypeError, match=r"^EventTimer\.wrap got the generator function"):
        timer.wrap(pieces)


def test_the_methods_of_a_metric_are_of_one_kind() -> None:
    with pytest.raises(ValueError, match=r"kind 'compute', but got 'h2d': leave kind out"):
        timed(tm.SumMetric(), kind="h2d")
