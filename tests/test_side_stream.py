"""Metrics on a stream of their own give the answers of metrics, and travel as they do."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torchmetrics import Metric, MinMaxMetric, SumMetric
from torchmetrics import MetricCollection as TorchMetricsCollection

import syncfree
from class_cases import ClassCase
from metric_contract import same_states, same_value
from side_stream_cases import batches_of_scores, collection, every_case, side_of
from syncfree.classification import MulticlassAccuracy, MulticlassF1Score
from syncfree.image import PeakSignalNoiseRatio

LONG = 1_000_000_000  # cycles: half a second, in which everything else is over


def same_run(metric: Metric, alone: Metric, batches: Callable[[int], list[Any]]) -> None:
    for turn in range(2):
        for number, batch in enumerate(batches(turn)):
            if number % 2:
                metric.update(*batch)
                alone.update(*batch)
            else:
                same_value(metric(*batch), alone(*batch))
            if number == 2:
                same_value(metric.compute(), alone.compute())
            assert metric.update_count == alone.update_count
        same_value(metric.compute(), alone.compute())
        same_states(metric, alone)
        metric.reset()
        alone.reset()
        same_states(metric, alone)


@every_case
def test_the_answers_are_those_of_the_metric(case: ClassCase, device: str) -> None:
    metric = case.ours(**case.options).to(device)
    assert syncfree.on_side_stream(metric) is metric
    assert isinstance(metric, case.ours)
    assert type(metric).__name__ == case.ours.__name__
    assert repr(metric) == repr(case.ours(**case.options))
    alone = case.ours(**case.options).to(device)
    same_run(metric, alone, lambda turn: case.batches(device, turn))


@every_case
def test_copies_go_on_alone(case: ClassCase, device: str) -> None:
    metric = syncfree.on_side_stream(case.ours(**case.options).to(device), copy_inputs=True)
    batches = case.batches(device)
    metric.update(*batches[0])
    file = io.BytesIO()
    torch.save(metric, file)
    file.seek(0)
    copies = [
        copy.deepcopy(metric),
        metric.clone(),
        pickle.loads(pickle.dumps(metric)),
        torch.load(file, weights_only=False),
    ]
    metric.reset()
    alone = case.ours(**case.options).to(device)
    for batch in batches:
        alone.update(*batch)
    for each in copies:
        assert type(each) is type(metric)
        assert side_of(each) is not side_of(metric)
        assert side_of(each).copy_inputs
        for batch in batches[1:]:
            each.update(*batch)
        same_value(each.compute(), alone.compute())
        same_states(each, alone)
    assert metric.update_count == 0


def test_states_travel(device: str) -> None:
    images = [torch.rand(2, 3, 16, 16, device=device) for _ in range(4)]
    metric = syncfree.on_side_stream(PeakSignalNoiseRatio(data_range=1.0)).to(device)
    metric.persistent(True)
    metric.update(*images[:2])
    other = syncfree.on_side_stream(PeakSignalNoiseRatio(data_range=1.0)).to(device)
    other.persistent(True)
    other.load_state_dict(metric.state_dict())
    other.update(*images[2:])
    alone = PeakSignalNoiseRatio(data_range=1.0).to(device)
    alone.update(*images[:2])
    alone.update(*images[2:])
    assert other.compute() == alone.compute()
    metric.merge_state(other)  # the first batch twice
    alone.update(*images[:2])
    torch.testing.assert_close(metric.compute(), alone.compute())
    assert metric.to("cpu").compute().device.type == "cpu"


def test_states_are_merged_with_those_of_a_metric_without_a_stream(device: str) -> None:
    class Special(SumMetric): ...

    for kind in (SumMetric, Special):
        metric, plain = syncfree.on_side_stream(SumMetric().to(device)), kind().to(device)
        metric.update(torch.tensor(1.0, device=device))
        plain.update(torch.tensor(2.0, device=device))
        metric.merge_state(plain)
        assert metric.compute() == 3
        plain.merge_state(metric if kind is SumMetric else metric.metric_state)
        assert plain.compute() == 5
        side = side_of(metric)
        with pytest.raises(ValueError, match="instance of SumMetric"):
            metric.merge_state(MinMaxMetric(SumMetric()))
        assert type(metric).__dict__.keys() >= {"sum_value"}  # ordered as before
        assert side_of(metric) is side
    timed = syncfree.on_side_stream(syncfree.EventTimer().wrap(SumMetric()))
    plain = SumMetric()
    plain.update(2.0)
    timed.merge_state(plain)
    assert timed.metric_state == {"sum_value": torch.tensor(2.0)}


@pytest.mark.parametrize("copied", [False, True])
def test_a_collection_shares_a_stream(device: str, copied: bool) -> None:
    metrics = syncfree.on_side_stream(collection(prefix="val/").to(device))
    if copied:
        metrics = metrics.clone()
    alone = collection(prefix="val/").to(device)
    assert len({id(side_of(each)) for each in (metrics, *metrics.values())}) == 1
    for _ in range(2):
        for batch in batches_of_scores(device):
            metrics.update(*batch)
            alone.update(*batch)
        assert metrics(*batch) == alone(*batch)
        assert metrics.compute() == alone.compute()
        assert metrics.compute_groups == alone.compute_groups
        assert len(metrics.compute_groups) < 3
        assert metrics["f1"].compute() == alone["f1"].compute()
        metrics.reset()
        alone.reset()


def test_metrics_that_join_a_collection_follow_it(device: str) -> None:
    metrics = syncfree.on_side_stream(collection().to(device))
    metrics.add_metrics({"weighted": MulticlassAccuracy(5, average="weighted").to(device)})
    assert side_of(metrics["weighted"]) is side_of(metrics)
    alone = collection().to(device)
    alone.add_metrics({"weighted": MulticlassAccuracy(5, average="weighted").to(device)})
    for batch in batches_of_scores(device):
        metrics.update(*batch)
        alone.update(*batch)
    assert metrics.compute() == alone.compute()
    assert metrics.compute_groups == alone.compute_groups


def test_members_with_streams_of_their_own(device: str) -> None:
    metrics = syncfree.MetricCollection(
        {
            "accuracy": syncfree.on_side_stream(MulticlassAccuracy(5)),
            "f1": syncfree.on_side_stream(MulticlassF1Score(5)),
            "plain": MulticlassAccuracy(5, average="micro"),
        }
    ).to(device)
    alone = collection().to(device)
    for batch in batches_of_scores(device):
        metrics.update(*batch)
        alone.update(*batch)
    assert list(metrics.compute().values()) == list(alone.compute().values())
    gathered = syncfree.on_side_stream(metrics)  # from now on one for all
    assert len({id(side_of(each)) for each in gathered.values()}) == 1
    for batch in batches_of_scores(device):
        gathered.update(*batch)
        alone.update(*batch)
    assert list(gathered.compute().values()) == list(alone.compute().values())


def test_metrics_of_torchmetrics_and_inside_of_wrappers(device: str) -> None:
    metrics = syncfree.on_side_stream(
        TorchMetricsCollection({"sum": SumMetric(), "most": MinMaxMetric(SumMetric())}).to(device)
    )
    assert side_of(metrics["most"]._base_metric) is side_of(metrics)
    for value in (1.0, 5.0):
        metrics.update(torch.tensor(value, device=device))
    assert metrics.compute()["sum"].item() == 6
    assert metrics.compute()["raw"].item() == 6
    assert syncfree.on_side_stream(SumMetric() + 1.0)(torch.ones(3)).item() == 4


def test_what_it_takes() -> None:
    with pytest.raises(TypeError, match="a metric or a collection, but got Linear"):
        syncfree.on_side_stream(torch.nn.Linear(2, 2))  # type: ignore[type-var]
    metric = syncfree.on_side_stream(SumMetric())
    kind, side = type(metric), side_of(metric)
    assert type(syncfree.on_side_stream(metric, copy_inputs=True)) is kind  # twice is once
    assert side_of(metric) is side
    assert side.copy_inputs


def test_inputs_are_copied_until_told_otherwise() -> None:
    metrics = syncfree.on_side_stream(collection())
    assert not side_of(metrics).copy_inputs
    syncfree.on_side_stream(metrics, copy_inputs=True)
    assert syncfree.on_side_stream(metrics) is metrics
    syncfree.on_side_stream(metrics["f1"])  # which has the stream of all
    assert side_of(metrics).copy_inputs
    syncfree.on_side_stream(metrics, copy_inputs=False)
    assert not side_of(metrics).copy_inputs
    inside = syncfree.on_side_stream(SumMetric(), copy_inputs=True)
    gathered = syncfree.on_side_stream(syncfree.MetricCollection([inside]))
    assert side_of(gathered).copy_inputs
    syncfree.on_side_stream(gathered, copy_inputs=False)
    assert not side_of(inside).copy_inputs


def test_time_it_first(device: str) -> None:
    timer = syncfree.EventTimer()
    x = torch.zeros(4, 4, device=device)
    metric = PeakSignalNoiseRatio(data_range=1.0).to(device)
    syncfree.on_side_stream(timer.wrap(metric))
    metric.update(x, x + 1)
    metric(x, x + 1)
    again = pickle.loads(pickle.dumps(metric))
    again.update(x, x + 1)
    assert again.compute() == metric.compute() == 0
    timer.wait()
    summary = timer.summary()
    assert summary["PeakSignalNoiseRatio.update"].count == 1
    assert summary["PeakSignalNoiseRatio.forward"].count == 1
    if device == "cuda":
        streams_seen = {each.stream for each in timer.samples() if "compute" not in each.name}
        assert streams_seen == {side_of(metric)._stream.cuda_stream}
    with pytest.raises(TypeError, match="time it first"):
        timer.wrap(syncfree.on_side_stream(SumMetric()))


def test_an_update_that_raises_leaves_the_metric_usable(device: str) -> None:
    metric = syncfree.on_side_stream(MulticlassAccuracy(num_classes=3).to(device))
    good = torch.tensor([0, 1, 2], device=device)
    metric.update(good, good)
    with pytest.raises((ValueError, RuntimeError)):
        metric.update(good, good[:2])
    metric.update(good, good)
    assert metric.compute() == 1
    assert metric.update_count == 2
