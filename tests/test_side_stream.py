"""`on_side_stream`: the answers of the metric without it, and the order of its streams."""

from __future__ import annotations

import copy
import io
import pickle
from collections import UserDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torchmetrics import Metric, MinMaxMetric, SumMetric
from torchmetrics import MetricCollection as TorchMetricsCollection

import syncfree
from class_cases import CASES, ClassCase
from syncfree._side_stream import SideStream
from syncfree.classification import MulticlassAccuracy, MulticlassF1Score
from syncfree.detector.findings import Recorder, Verdict
from syncfree.detector.tier0 import Tier0, streams
from syncfree.image import PeakSignalNoiseRatio
from test_metric_contract import same_states, same_value

every_case = pytest.mark.parametrize("case", CASES, ids=str)
without_gpu = pytest.mark.skipif(
    torch.cuda.is_available(), reason="tier 0 stands in for a GPU, and here is a real one"
)
LONG = 1_000_000_000  # cycles: half a second, in which everything else is over


def side_of(metric: Any) -> SideStream:
    return metric.__dict__["_syncfree_side"]


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


def collection(**options: Any) -> Any:
    return syncfree.MetricCollection(
        {
            "accuracy": MulticlassAccuracy(num_classes=5),
            "f1": MulticlassF1Score(num_classes=5),
            "micro": MulticlassAccuracy(num_classes=5, average="micro"),
        },
        **options,
    )


def batches_of_scores(device: str) -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(3)
    return [
        (torch.randn(40, 5).to(device), torch.randint(0, 5, (40,)).to(device)) for _ in range(4)
    ]


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


# What is put on which stream, told by the virtual device


@pytest.fixture
def virtual() -> Iterator[list[str]]:
    """What is asked of streams and events, in order; no call may make the host wait."""
    log: list[str] = []
    recorder = Recorder()
    with Tier0(recorder), pytest.MonkeyPatch.context() as patch:
        names: dict[int, str] = {}

        def name(event: Any) -> str:
            return names.setdefault(id(event), f"event {len(names)}")

        def where(stream: Any) -> str:
            return "main" if stream.cuda_stream == 0 else "side"

        def wait(stream: Any, event: Any) -> None:
            log.append(f"{where(stream)} waits for {name(event)}")

        def record(event: Any, stream: Any = None) -> None:
            log.append(f"{name(event)} on {where(stream)}")

        patch.setattr(streams.Stream, "wait_event", wait)
        patch.setattr(streams.Event, "record", record)
        yield log
    assert [f for f in recorder.findings() if f.event.verdict is not Verdict.CONDITIONAL] == []


class Noted(Metric):
    """Says on which stream it is updated and computed."""

    full_state_update = False
    log: list[str]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(()), "sum")

    def update(self, value: Any) -> None:
        handle = torch.cuda.current_stream().cuda_stream
        self.log.append(f"update on {'side' if handle else 'main'}")
        self.total = self.total + (value.sum() if isinstance(value, Tensor) else value)

    def compute(self) -> Any:
        handle = torch.cuda.current_stream().cuda_stream
        self.log.append(f"compute on {'side' if handle else 'main'}")
        return self.total * 1


UPDATE = ["event 0 on main", "side waits for event 0", "update on side", "event 1 on side"]


@without_gpu
def test_the_order_of_streams(virtual: list[str]) -> None:
    Noted.log = virtual
    metric = syncfree.on_side_stream(Noted().to("cuda"))
    x = torch.ones(3).to("cuda")
    virtual.clear()
    metric.update(x)
    metric.update(x)
    assert virtual == UPDATE * 2  # the main stream waits for nothing
    virtual.clear()
    metric.compute()
    assert virtual == ["main waits for event 1", "compute on main"]
    virtual.clear()
    assert metric.total.shape == ()  # has been waited for
    assert virtual == []
    metric.update(x)
    virtual.clear()
    assert metric.total.shape == ()
    metric.reset()
    assert virtual == ["main waits for event 1"]
    metric(x)
    assert virtual[-1] == "main waits for event 1"  # the value is for the main stream
    virtual.clear()
    metric.update(1.0)  # nothing to read on a GPU
    assert virtual == ["update on main"]


@without_gpu
@pytest.mark.parametrize(
    "change",
    [lambda metric: metric.to("cuda"), lambda metric: metric.set_dtype(torch.float64)],
    ids=["to", "set_dtype"],
)
def test_weights_that_an_update_reads_are_replaced_behind_it(
    virtual: list[str], change: Callable[[Metric], Any]
) -> None:
    class Weights(torch.nn.Linear):
        def _apply(self, *args: Any, **kwargs: Any) -> Any:
            virtual.append("weights")
            return super()._apply(*args, **kwargs)

    class Weighted(Noted):
        def __init__(self) -> None:
            super().__init__()
            self.weights = Weights(2, 2)

    Noted.log = virtual
    metric = syncfree.on_side_stream(Weighted().to("cuda"))
    metric.update(torch.ones(3).to("cuda"))
    virtual.clear()
    change(metric)
    assert virtual == ["main waits for event 1", "weights"]


@without_gpu
def test_a_state_that_comes_late_is_waited_for_too(virtual: list[str]) -> None:
    class Late(Metric):
        full_state_update = False

        def update(self, value: Tensor) -> None:
            if "total" not in self._defaults:
                self.add_state("total", torch.zeros((), device=value.device), "sum")
            self.total = self.total + value.sum()

        def compute(self) -> Any:
            return self.total

    metric = syncfree.on_side_stream(Late())
    metric.update(torch.ones(3).to("cuda"))
    virtual.clear()
    assert metric.total.shape == ()
    assert virtual == ["main waits for event 1"]
    assert type(copy.deepcopy(metric)) is type(metric)


@without_gpu
@pytest.mark.parametrize("read", ["compute", "reset", "total", "state_dict"])
def test_what_a_graph_reads_is_written_on_its_stream(
    virtual: list[str], monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    """A replay does not wait for the side stream."""
    Noted.log = virtual
    metric = syncfree.on_side_stream(Noted().to("cuda"))
    metric.persistent(True)
    x = torch.ones(3).to("cuda")
    metric.update(x)
    with monkeypatch.context() as capture:
        capture.setattr("syncfree._side_stream.is_capturing", lambda: True)
        call = getattr(metric, read)
        if callable(call):
            call()
    for placed in (metric, syncfree.on_side_stream(TorchMetricsCollection([metric]))):
        virtual.clear()
        placed.update(x)
        assert "update on main" in virtual
        assert "update on side" not in virtual
        placed.compute()


@without_gpu
def test_a_metric_that_was_captured_before_stays_where_it_is(virtual: list[str]) -> None:
    metric = PeakSignalNoiseRatio(data_range=1.0).to("cuda")
    metric.__dict__["_is_replayed"] = True  # as after the capture of an update
    syncfree.on_side_stream(metric)
    virtual.clear()
    metric.update(torch.ones(4).to("cuda"), torch.zeros(4).to("cuda"))
    assert virtual == []


@without_gpu
def test_inputs_and_states_are_kept(virtual: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[tuple[int, bool]] = []
    monkeypatch.setattr(
        Tensor, "record_stream", lambda x, s: kept.append((id(x), s.cuda_stream > 0))
    )
    Noted.log = virtual
    metric = syncfree.on_side_stream(Noted().to("cuda"))
    x, before = torch.ones(3).to("cuda"), metric.__dict__["total"]
    metric.update(x)
    assert {(id(x), True), (id(before), True)} <= set(kept)
    kept.clear()
    value = metric(x)
    assert (id(value), False) in kept
    kept.clear()
    metric.compute()
    assert (id(metric.__dict__["total"]), False) in kept


@without_gpu
def test_inputs_are_found_and_copied_in_containers(
    virtual: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Nested(Metric):
        full_state_update = False

        def update(self, boxes: Any, options: Any) -> None:
            seen.extend([*boxes[0], boxes[1].mask, options["a"]["b"]])
            assert type(boxes[0]) is list
            assert type(boxes[1]) is Box

        def compute(self) -> None: ...

    class Box(NamedTuple):
        mask: Tensor

    seen: list[Tensor] = []
    kept: list[int] = []
    monkeypatch.setattr(Tensor, "record_stream", lambda x, s: kept.append(id(x)))
    given = [torch.ones(2).to("cuda") for _ in range(3)]
    metric = syncfree.on_side_stream(Nested())
    arguments = ([given[0]], Box(given[1])), UserDict(a={"b": given[2]})
    metric.update(*arguments)
    assert {id(each) for each in seen} == {id(each) for each in given} == set(kept)
    syncfree.on_side_stream(metric, copy_inputs=True)
    seen.clear()
    kept.clear()
    metric.update(*arguments)
    assert {id(each) for each in seen}.isdisjoint(id(each) for each in given)
    assert {id(each) for each in seen} == set(kept)


@without_gpu
@every_case
def test_every_class_on_the_virtual_device(case: ClassCase, virtual: list[str]) -> None:
    metric = syncfree.on_side_stream(case.ours(**case.options).to("cuda"))
    alone = case.ours(**case.options).to("cuda")
    batches = [tuple(x.to("cuda") for x in batch) for batch in case.batches("cpu")]
    places = {name: id(state) for name, state in metric.metric_state.items()}
    virtual.clear()
    for batch in batches:
        metric.update(*batch)
        alone.update(*batch)
    assert virtual == [each for each in UPDATE if "update" not in each] * len(batches)
    # Nothing that this adds counts as another holder of a state, which would then move.
    assert {name: id(state) for name, state in metric.metric_state.items()} == places
    assert len(metric.metric_state) == len(alone.metric_state)
    metric.compute()
    metric.reset()


@without_gpu
def test_a_collection_goes_to_its_stream_as_one(virtual: list[str]) -> None:
    metrics = syncfree.on_side_stream(collection().to("cuda"))
    alone = collection().to("cuda")
    batches = [tuple(x.to("cuda") for x in batch) for batch in batches_of_scores("cpu")]
    virtual.clear()
    for batch in batches:
        metrics.update(*batch)
        alone.update(*batch)
    assert virtual == [each for each in UPDATE if "update" not in each] * len(batches)
    assert len(metrics.compute_groups) < 3
    virtual.clear()
    found = metrics.compute()
    assert virtual == ["main waits for event 1"]
    for name, value in alone.compute().items():
        assert found[name].shape == value.shape
    metrics.reset()
    assert metrics["f1"].tp.shape == (5,)
    assert virtual == ["main waits for event 1"]
