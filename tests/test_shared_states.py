"""States that more than one metric or variable holds: nobody's numbers change behind their back."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
import torchmetrics.classification as tm
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.wrappers import MinMaxMetric, Running

import syncfree
from class_cases import CASES, ClassCase
from metric_contract import same_states, same_value
from syncfree import classification as sf

# Lists TorchMetrics appends to and clears for all who hold them.
TENSORS = [case for case in CASES if not case.has_lists]
every_case = pytest.mark.parametrize("case", TENSORS, ids=str)
accuracies = pytest.mark.parametrize(
    "case", [case for case in TENSORS if "tp" in case.ours(**case.options)._defaults], ids=str
)


def batches(count: int, device: str) -> list[tuple[Tensor, Tensor]]:
    return [
        (torch.randint(0, 5, (20,), device=device), torch.randint(0, 5, (20,), device=device))
        for _ in range(count)
    ]


def counted(metric: Metric) -> int:
    """How many elements a metric has seen."""
    return int(sum(state.sum() for state in (metric.tp, metric.fn)))


@every_case
def test_states_kept_from_before_a_reset(case: ClassCase, device: str) -> None:
    snapshots = []
    for metric in case.pair(device):
        kept = []
        for batch in case.batches(device):
            metric.update(*batch)
            kept.append(metric.metric_state)
            metric.reset()
        snapshots.append(kept)
    torch.testing.assert_close(*snapshots, rtol=1e-6, atol=0)


@every_case
def test_running_window(case: ClassCase, device: str) -> None:
    ours, theirs = (Running(metric, window=2) for metric in case.pair(device))
    last_two = []
    for batch in case.batches(device):
        same_value(ours(*batch), theirs(*batch))
        last_two = [*last_two[-1:], batch]
        alone, _ = case.pair(device)
        for each in last_two:
            alone.update(*each)
        same_value(ours.compute(), alone.compute())
        if "data_range" not in alone.metric_state:  # whose mean is NaN there
            same_value(ours.compute(), theirs.compute())


@pytest.mark.parametrize("case", [case for case in CASES if case.has_lists], ids=str)
def test_lists_kept_from_before_a_reset(case: ClassCase, device: str) -> None:
    """TorchMetrics empties them, and with them what `Running` keeps of its window."""
    metric, _ = case.pair(device)
    running = Running(case.pair(device)[0], window=2)
    kept = []
    for batch in case.batches(device)[:2]:
        metric.update(*batch)
        kept.append(metric.metric_state)
        metric.reset()
        running.update(*batch)
    for states, batch in zip(kept, case.batches(device), strict=False):
        alone, _ = case.pair(device)
        alone.update(*batch)
        torch.testing.assert_close(states, alone.metric_state, rtol=0, atol=0)
        metric.update(*batch)
    # The window begins with its last batch.
    values = (whole.compute().flatten().sort().values for whole in (running, metric))
    same_value(*values)


@accuracies
def test_shallow_copies(case: ClassCase, device: str) -> None:
    """As in TorchMetrics, a step of one is no step of the other."""
    pairs = []
    for metric in case.pair(device):
        first, second, *_ = case.batches(device)
        metric.update(*first)
        other = copy.copy(metric)
        other.__dict__ = dict(metric.__dict__)
        other.update = other._wrap_update(type(other).update.__get__(other))
        other.update(*second)
        pairs.append((metric, other))
    same_states(pairs[0][0], pairs[1][0])


@pytest.mark.parametrize("step", ["update", "forward"])
def test_metrics_that_join_and_leave_collections(step: str, device: str) -> None:
    stream = batches(6, device)

    def run(library: Any) -> list[int]:
        def take(collection: MetricCollection, i: int) -> None:
            (collection if step == "forward" else collection.update)(*stream[i])

        def make(average: str) -> Metric:
            return library.MulticlassAccuracy(5, average=average).to(device)

        collection = MetricCollection({"a": make("macro"), "b": make("weighted")})
        seen = []
        take(collection, 0)
        collection.add_metrics({"c": make("none")})
        take(collection, 1)
        seen += [counted(metric) for metric in collection.values()]
        other = MetricCollection({"a": collection["a"], "b": collection["b"]})
        take(other, 2)
        seen += [counted(metric) for metric in collection.values()]
        collection["b"].update(*stream[3])
        seen += [counted(metric) for metric in collection.values(copy_state=False)]
        take(collection, 4)
        collection.reset()
        take(collection, 5)
        return [*seen, *(counted(metric) for metric in collection.values())]

    assert run(sf) == run(tm)


def test_group_of_ours(device: str) -> None:
    averages = ("macro", "weighted", "none")
    ours, theirs = (
        MetricCollection(
            {average: x.MulticlassAccuracy(5, average=average).to(device) for average in averages}
        )
        for x in (sf, tm)
    )
    for i, batch in enumerate(batches(6, device)):
        if i % 2:
            same_value(ours(*batch), theirs(*batch))
        else:
            ours.update(*batch)
            theirs.update(*batch)
        same_value(ours.compute(), theirs.compute())
    assert len(ours.compute_groups) == 1


# ---- What a metric is told after it was made.


class Wrapped(sf.MulticlassAccuracy):
    """The decorator gives the method our module's name."""

    @functools.wraps(sf.MulticlassAccuracy.update)
    def update(self, preds: Tensor, target: Tensor) -> None:
        super().update(target, target)


class Doubled(sf.MulticlassAccuracy):
    def _update_state(self, tp: Tensor, fp: Tensor, tn: Tensor, fn: Tensor) -> None:
        super()._update_state(2 * tp, fp, tn, fn)


class Losses(sf.MulticlassAccuracy):
    """States of its own, which take the dtype and the shape of what is added."""

    def __init__(self, **options: Any) -> None:
        super().__init__(5, **options)
        self.add_state("highest", torch.tensor(0), "sum")
        self.add_state("of_classes", torch.tensor(0.0), "sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        super().update(preds, target)
        self.highest = self.highest + preds.max()
        self.of_classes = self.of_classes + preds.double().sum(0)


@pytest.mark.parametrize("options", [{}, {"dist_sync_on_step": True}], ids=str)
def test_states_of_subclasses_grow_in_dtype_and_shape(options: dict, device: str) -> None:
    metric = Losses(**options).to(device)
    for _ in range(2):
        scores = torch.rand(3, 8, 5, device=device)
        for batch in scores:
            metric(batch, torch.randint(0, 5, (8,), device=device))
        highest = scores.amax((1, 2)).sum()
        torch.testing.assert_close(metric.highest, highest)
        torch.testing.assert_close(metric.of_classes, scores.double().sum((0, 1)))
        metric.reset()


def test_methods_of_subclasses_are_heeded(device: str) -> None:
    ((preds, target),) = batches(1, device)
    assert Wrapped(5, average="micro").to(device)(preds, target).item() == 1


@pytest.mark.parametrize(
    ("kind", "made", "changed"),
    [
        ("BinaryAccuracy", {}, {"threshold": 0.7}),
        ("MulticlassAccuracy", {"num_classes": 5, "average": "micro"}, {"ignore_index": 0}),
        ("MulticlassAccuracy", {"num_classes": 5}, {"average": None}),
        ("MulticlassAccuracy", {"num_classes": 5}, {"average": "weighted", "ignore_index": 2}),
        ("MultilabelAccuracy", {"num_labels": 4}, {"threshold": 0.2, "average": "none"}),
    ],
)
def test_options_may_change(kind: str, made: dict, changed: dict, device: str) -> None:
    ours, theirs = (getattr(library, kind)(**made).to(device) for library in (sf, tm))
    for metric in (ours, theirs):
        for name, value in changed.items():
            setattr(metric, name, value)
    for _ in range(2):
        if kind == "MulticlassAccuracy":
            preds, target = batches(1, device)[0]
        else:
            preds = torch.rand(20, 4, device=device)
            target = torch.randint(0, 2, (20, 4), device=device)
        same_value(ours(preds, target), theirs(preds, target))
    same_value(ours.compute(), theirs.compute())
    with pytest.raises(ValueError, match="`ignore_index`"):
        ours.ignore_index = "x"


# ---- The sum that says that a label was bad.


class WithMaximum(sf.MulticlassAccuracy):
    """A state that is no sum, and an update of its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.add_state("highest", torch.zeros(()), dist_reduce_fx="max")

    def update(self, preds: Tensor, target: Tensor) -> None:
        super().update(preds, target)
        self.highest = torch.maximum(self.highest, preds.max())


@pytest.mark.parametrize("kind", [sf.MulticlassAccuracy, WithMaximum, Wrapped])
def test_bad_labels_are_remembered(kind: type[Metric], device: str) -> None:
    metric, other = kind(5).to(device), kind(5).to(device)
    for batch in batches(2, device):
        metric.update(*batch)
        other.update(*batch)
    metric._bad += 1  # as a kernel on CUDA leaves it
    metric(*batches(1, device)[0])
    assert metric.compute().isnan()
    assert metric.clone().compute().isnan()
    other.merge_state(metric)
    assert other.compute().isnan()
    clean = kind(5).to(device)
    clean.update(*batches(1, device)[0])
    clean.persistent(True)
    metric.load_state_dict(clean.state_dict())
    assert not metric.compute().isnan()
    other.reset()
    other.update(*batches(1, device)[0])
    assert not other.compute().isnan()


def test_an_error_of_an_earlier_batch_costs_no_counts(device: str) -> None:
    class Own(sf.MulticlassAccuracy):
        def compute(self) -> Tensor:
            return super().compute() / 2

    metric = Own(5).to(device)
    first, second = batches(2, device)
    metric(*first)
    pending = [RuntimeError("7 at flat index 3")]

    def raise_pending() -> None:
        if pending:
            raise pending.pop()

    metric._raise_pending = raise_pending
    with pytest.raises(RuntimeError, match="7 at flat"):
        metric(*second)
    assert counted(metric) == 40


@pytest.mark.parametrize("records", [True, False])
def test_a_copy_of_a_shared_state_is_recorded_as_torch_is_told(records: bool) -> None:
    """Of one that a subclass differentiates; the copy is made outside of inference mode."""
    metric = syncfree.PeakSignalNoiseRatio(data_range=1.0)
    metric.sum_squared_error = kept = torch.tensor(2.0, requires_grad=True)
    with torch.set_grad_enabled(records):
        metric._let_go_of_shared_states(in_forward=False)
        assert torch.is_grad_enabled() is records
    assert metric.sum_squared_error is not kept
    assert metric.sum_squared_error.requires_grad is records


def test_expanded_states_can_be_reset(device: str) -> None:
    metric = sf.MulticlassAccuracy(5).to(device)
    metric.tp = torch.ones((), dtype=torch.int64, device=device).expand(5)
    metric.reset()
    metric.update(*batches(1, device)[0])
    assert counted(metric) == 20


# ---- Our own collection, whose members mean to share.


def make_group(device: str) -> MetricCollection:
    averages = ("macro", "weighted", "none")
    return syncfree.MetricCollection(
        {average: sf.MulticlassAccuracy(5, average=average).to(device) for average in averages}
    )


def test_a_group_counts_where_its_states_are(device: str) -> None:
    """So that a captured update of a collection goes on counting, and no step copies."""
    collection = make_group(device)
    collection.update(*batches(1, device)[0])
    before = [state.data_ptr() for state in collection["macro"].metric_state.values()]
    for i, batch in enumerate(batches(6, device)):
        (collection if i % 2 else collection.update)(*batch)
        collection.compute()
    assert [state.data_ptr() for state in collection["macro"].metric_state.values()] == before
    collection.reset()
    collection.update(*batches(1, device)[0])
    assert [state.data_ptr() for state in collection["macro"].metric_state.values()] == before


@pytest.mark.parametrize("seen", [0, 1])
@pytest.mark.parametrize("step", ["update", "forward"])
@pytest.mark.parametrize("accuracy", [sf.MulticlassAccuracy, tm.MulticlassAccuracy])
def test_states_kept_from_a_group(
    accuracy: type[Metric], step: str, seen: int, device: str
) -> None:
    averages = ("macro", "weighted", "none")
    for name in averages:
        collection = syncfree.MetricCollection({x: accuracy(5, average=x) for x in averages})
        collection.to(device)
        for batch in batches(seen, device):
            collection.update(*batch)
        kept = collection[name].tp
        before = kept.clone()
        for batch in batches(3, device):
            getattr(collection, step)(*batch)
        assert torch.equal(kept, before)
        assert all(counted(metric) == 20 * (seen + 3) for metric in collection.values())


@pytest.mark.parametrize("step", ["update", "forward"])
def test_a_group_of_wrappers_which_have_no_states(step: str, device: str) -> None:
    metrics = {name: MinMaxMetric(sf.MulticlassAccuracy(5)) for name in "ab"}
    collection = syncfree.MetricCollection(metrics, compute_groups=[["a", "b"]]).to(device)
    ((preds, target),) = batches(1, device)
    getattr(collection, step)(preds, target)
    alone = sf.MulticlassAccuracy(5).to(device)
    same_value(collection.compute()["a_raw"], alone(preds, target))


def test_an_error_of_one_leaves_the_others_computed(device: str) -> None:
    """What comes next is then the same in all processes."""
    collection = make_group(device)
    collection.update(*batches(1, device)[0])
    pending = [RuntimeError("7 at flat index 3")]

    def raise_pending() -> None:
        if pending:
            raise pending.pop()

    collection["macro"]._raise_pending = raise_pending
    with pytest.raises(RuntimeError, match="7 at flat"):
        collection.compute()
    assert all(metric._computed is not None for metric in collection.values())
    collection.compute()


def test_errors_of_several_are_raised_together(device: str) -> None:
    """A record of bad labels is taken when it is raised: what is not told is lost."""
    collection = make_group(device)
    collection.update(*batches(1, device)[0])
    pending: dict[str, Exception] = {
        "macro": ValueError("no value"),
        "weighted": RuntimeError("7 at flat index 3"),
        "none": RuntimeError("9 at flat index 4"),
    }

    def raise_pending(name: str) -> None:
        if name in pending:
            raise pending.pop(name)

    for name in pending:
        collection[name]._raise_pending = functools.partial(raise_pending, name)
    with pytest.raises(RuntimeError, match=r"^9 at flat index 4\n7 at flat index 3$"):
        collection.compute()
    assert not pending
    collection.compute()
