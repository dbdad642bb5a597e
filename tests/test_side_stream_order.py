"""What a metric on a side stream puts on which stream, told by the detector's virtual device."""

from __future__ import annotations

import copy
from collections import UserDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics import MetricCollection as TorchMetricsCollection

import syncfree
from class_cases import ClassCase
from side_stream_cases import batches_of_scores, collection, every_case
from syncfree.detector.findings import Recorder, Verdict
from syncfree.detector.tier0 import Tier0, streams
from syncfree.image import PeakSignalNoiseRatio

without_gpu = pytest.mark.skipif(
    torch.cuda.is_available(), reason="tier 0 stands in for a GPU, and here is a real one"
)


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
    waits = [f for f in recorder.findings() if f.event.verdict is not Verdict.CONDITIONAL]
    assert [f for f in waits if f.event.direction != "h2d"] == []  # the tests bring their inputs


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
