"""Methods that a user puts in the place of ours once the class is made: `forward` calls them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torchmetrics
import torchmetrics.image

import syncfree as sf
from class_cases import CASES, ClassCase
from processes import in_processes

Change = Callable[[Any], Any]

CHANGES: dict[str, Change] = {
    "update": lambda update: lambda *args: update(*args[:-2], args[-2].flip(-1), args[-1]),
    "compute": lambda compute: lambda *args: compute(*args) / 2,
}
# Sums in integers and floats, and lists of both.
FEW = [case for case in CASES if "Accuracy" in case.ours.__name__][::4]
FEW += [case for case in CASES if "PeakSignal" in case.ours.__name__]


@pytest.mark.parametrize("place", ["a subclass", "the class", "one metric"])
@pytest.mark.parametrize("method", CHANGES)
@pytest.mark.parametrize("case", FEW, ids=str)
def test_forward_calls_it_as_torchmetrics(
    case: ClassCase, method: str, place: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, metrics = CHANGES[method], []
    for base in (case.ours, case.theirs):
        kind = type("Own", (base,), {}) if place == "a subclass" else base
        with monkeypatch.context() as patch:
            if place != "one metric":
                patch.setattr(kind, method, change(getattr(kind, method)))
            metric = kind(**case.options).to(device)
        if place == "one metric":
            setattr(metric, method, change(getattr(metric, method)))
        metrics.append(metric)
    ours, theirs = metrics
    for batch in case.batches(device):
        torch.testing.assert_close(ours(*batch), theirs(*batch), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(ours.metric_state, theirs.metric_state, rtol=1e-6, atol=0)
    torch.testing.assert_close(ours.compute(), theirs.compute(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("make", [sf.on_side_stream, sf.EventTimer("cpu").wrap])
def test_a_class_made_of_the_changed_one_does_not_make_its_methods_ours(
    make: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sf.MulticlassAccuracy, "compute", lambda self: torch.tensor(42.0))
    labels = torch.tensor([0, 1, 2])
    assert make(sf.MulticlassAccuracy(3))(labels, labels) == 42
    assert sf.MulticlassAccuracy(3)(labels, labels) == 42


HELPERS: dict[str, Change] = {
    "_update_state": lambda add: lambda *args: add(*args[:-4], args[-4] * 0, *args[-3:]),
    "_final_state": lambda get: lambda *args: (get(*args)[0] * 0, *get(*args)[1:]),
}
COUNTING = [case for case in CASES if "Accuracy" in case.ours.__name__]


@pytest.mark.parametrize("place", ["a subclass", "one metric"])
@pytest.mark.parametrize("method", HELPERS)
@pytest.mark.parametrize("case", COUNTING, ids=str)
def test_helpers_that_torchmetrics_calls(
    case: ClassCase, method: str, place: str, device: str
) -> None:
    values = []
    for base in (case.ours, case.theirs):
        change = HELPERS[method]
        methods = {method: change(getattr(base, method))} if place == "a subclass" else {}
        metrics = [type("Own", (base,), methods)(**case.options).to(device) for _ in range(2)]
        if place == "one metric":
            for metric in metrics:
                setattr(metric, method, change(getattr(metric, method)))
        steps, whole = metrics
        for batch in case.batches(device):
            whole.update(*batch)
            values.append(steps(*batch))
        values += [steps.compute(), whole.compute()]
    half = len(values) // 2
    torch.testing.assert_close(values[:half], values[half:], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("PeakSignalNoiseRatio", {"data_range": (0.2, 0.9)}),
        ("PeakSignalNoiseRatio", {"data_range": 1.0, "dim": (1, 2, 3)}),
        ("StructuralSimilarityIndexMeasure", {"data_range": 1.0}),
        ("StructuralSimilarityIndexMeasure", {}),
        ("MultiScaleStructuralSimilarityIndexMeasure", {"betas": (0.4, 0.6)}),
    ],
)
def test_an_image_metric_that_calls_torchmetrics_init(
    name: str, options: dict[str, Any], device: str
) -> None:
    theirs = getattr(torchmetrics.image, name)

    def of(base: Any) -> Any:
        class Own(base):  # type: ignore[misc]
            def __init__(self) -> None:
                theirs.__init__(self, **options)

        return Own().to(device)

    random = torch.Generator().manual_seed(5)
    batches = torch.rand(2, 2, 3, 3, 40, 40, generator=random).to(device)
    ours, plain = of(getattr(sf, name)), of(theirs)
    for preds, target in batches:
        torch.testing.assert_close(ours(preds, target), plain(preds, target))
        ours.update(preds, target)
        plain.update(preds, target)
    torch.testing.assert_close(ours.compute(), plain.compute())
    ours.reset()
    ours.update(*batches[0])
    plain.reset()
    plain.update(*batches[0])
    torch.testing.assert_close(ours.compute(), plain.compute())


def test_a_subclass_that_calls_torchmetrics_init_elsewhere() -> None:
    """What is made at the first batch stands where the states are by then."""

    class Own(sf.MulticlassAccuracy):
        def __init__(self) -> None:
            super(sf.MulticlassAccuracy, self).__init__(num_classes=3)

    metric = Own().to("meta")
    labels = torch.zeros(4, dtype=torch.long, device="meta")
    assert metric(labels, labels).device.type == "meta"
    assert {state.device.type for state in metric._hidden_states().values()} == {"meta"}


@pytest.mark.parametrize("multidim_average", ["global", "samplewise"])
def test_a_subclass_that_calls_torchmetrics_init(multidim_average: str, device: str) -> None:
    theirs_init = torchmetrics.classification.MulticlassAccuracy.__init__

    def of(base: Any) -> Any:
        class Own(base):  # type: ignore[misc]
            def __init__(self) -> None:
                theirs_init(self, num_classes=3, multidim_average=multidim_average)

        return Own().to(device)

    labels = torch.tensor([[0, 1], [2, 2]], device=device)
    for call in ("update", "forward"):
        ours, theirs = of(sf.MulticlassAccuracy), of(torchmetrics.classification.MulticlassAccuracy)
        values = [getattr(metric, call)(labels, labels.flip(1)) for metric in (ours, theirs)]
        torch.testing.assert_close(values[0], values[1])
        torch.testing.assert_close(ours.compute(), theirs.compute())


class Late(sf.BinaryAccuracy):
    """What ours needs is made when it is first asked for."""

    def __init__(self) -> None:
        torchmetrics.classification.BinaryAccuracy.__init__(self)


BATCH = torch.tensor([0.9, 0.1, 0.8, 0.3]), torch.tensor([1, 0, 0, 0])


def _updated(metric: Any) -> Any:
    metric.update(*BATCH)
    return metric


def _loaded(metric: Any) -> Any:
    saved = _updated(Late())
    for each in (saved, metric):
        each.persistent(True)
    metric.load_state_dict(saved.state_dict())
    return metric


def _merged(metric: Any) -> Any:
    metric.merge_state(_updated(Late()))
    return metric


def _tracked(metric: Any) -> Any:
    tracker = torchmetrics.MetricTracker(metric)
    tracker.increment()
    return _updated(tracker)


@pytest.mark.parametrize(
    "use",
    [
        lambda metric: _updated(copy.deepcopy(metric)),
        lambda metric: _updated(pickle.loads(pickle.dumps(metric))),
        lambda metric: _updated(sf.MetricCollection([metric]).clone()),
        lambda metric: _updated(sf.MetricCollection({"a": metric, "b": Late()})),
        _loaded,
        _merged,
        _tracked,
    ],
    ids=["deepcopy", "pickle", "clone", "collection", "load", "merge", "tracker"],
)
def test_a_subclass_that_calls_torchmetrics_init_before_its_first_batch(use: Change) -> None:
    got = use(Late()).compute()
    values = list(got.values()) if isinstance(got, dict) else [got]
    assert values
    assert all(value == 0.75 for value in values)


def test_such_a_subclass_without_a_batch() -> None:
    with pytest.warns(UserWarning, match="before the ``update`` method"):
        assert Late().compute() == 0
    metric = _updated(Late())
    metric.merge_state(Late())
    assert metric.compute() == 0.75


def _compute_where_one_has_no_batch(rank: int, world: int) -> None:
    metric = Late()
    if rank == 0:
        metric.update(*BATCH)
    assert metric.compute() == 0.75


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_such_a_subclass_in_a_process_without_a_batch(tmp_path: Path) -> None:
    in_processes(2, _compute_where_one_has_no_batch, tmp_path)
