"""Which metrics of a collection share one update."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

import pytest
import torch
import torchmetrics as tm
import torchmetrics.classification as tc
from torch import Tensor

import syncfree as sf
import syncfree.classification as sc
from collection_cases import (
    CASES,
    CLASSES,
    alone,
    every_case,
    groups,
    make,
    multiclass,
    same,
    scores,
)
from syncfree._compute_groups import UPDATES, group_alike


@pytest.mark.skipif(
    tuple(map(int, tm.__version__.split(".")[:2])) < (1, 9), reason="compares one state of each"
)
@every_case
def test_same_groups_as_by_values(case: str, device: str) -> None:
    """On inputs that tell all options apart, TorchMetrics finds the groups by comparison."""
    ours, theirs = make(case, "cpu")
    ours.update(*CASES[case][1]("cpu", 0))
    theirs.update(*CASES[case][1]("cpu", 0))
    expected = groups(theirs)
    assert groups(ours) == expected
    assert (max(map(len, expected)) > 1) == (case != "images")
    on_device = make(case, device)[0]
    on_device(*CASES[case][1](device, 0))
    assert groups(on_device) == expected  # grouped while on the CPU


def test_ours_leads(device: str) -> None:
    ours = make("multiclass", device)[0]
    ours.update(*scores(device, 0))
    leaders = {names[0] for names in ours.compute_groups.values()}
    assert leaders == {"accuracy", "micro", "other"}


class Elsewhere(tc.MulticlassRecall):
    """A subclass of the user's that changes what becomes of the counts."""

    def compute(self) -> Tensor:
        return 1 - super().compute()


class OtherCounts(tc.MulticlassRecall):
    def _update_state(self, *counts: Tensor) -> None:
        super()._update_state(*(2 * count for count in counts))


class OtherUpdate(sc.MulticlassAccuracy):
    def update(self, preds: Tensor, target: Tensor) -> None:
        super().update(preds.roll(1, 0), target)


def test_subclasses(device: str) -> None:
    def metrics(c: Any) -> list[Any]:
        own = Elsewhere(5), OtherCounts(5), OtherUpdate(5)
        return [c.MulticlassAccuracy(5), *own]

    ours, theirs = sf.MetricCollection(metrics(sc)), tm.MetricCollection(metrics(tc))
    for i in range(3):
        inputs = scores(device, i)
        same(ours.to(device)(*inputs), theirs.to(device)(*inputs))
        ours.update(*inputs)
        theirs.update(*inputs)
        same(ours.compute(), theirs.compute())
    assert groups(ours) == {
        frozenset({"MulticlassAccuracy", "Elsewhere"}),
        frozenset({"OtherCounts"}),
        frozenset({"OtherUpdate"}),
    }


@pytest.mark.parametrize(
    "changed",
    [
        {"num_classes": 6},
        {"top_k": 2},
        {"average": "micro"},
        {"multidim_average": "samplewise"},
        {"ignore_index": 2},
    ],
    ids=str,
)
def test_options_that_part_metrics(changed: dict[str, Any]) -> None:
    options = {"num_classes": CLASSES}
    ours, theirs = sc.MulticlassAccuracy(**options), tc.MulticlassF1Score(**options)
    other = tc.MulticlassPrecision(**{**options, **changed})
    alike = group_alike({"theirs": theirs, "ours": ours, "other": other})
    assert alike == [["ours", "theirs"], ["other"]]


def test_a_metric_that_checks_leads() -> None:
    lax, strict = sc.BinaryAccuracy(validate_args=False), sc.BinaryAccuracy()
    theirs = tc.BinaryF1Score()
    assert group_alike({"lax": lax, "theirs": theirs}) == [["theirs", "lax"]]
    assert group_alike({"lax": lax, "theirs": theirs, "strict": strict}) == [
        ["strict", "theirs", "lax"]
    ]


def test_table_names_what_updates_read() -> None:
    """A new TorchMetrics may read more of a metric than the table says."""
    for update, options in UPDATES.items():
        tree = ast.parse(textwrap.dedent(inspect.getsource(update)))
        read = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        }
        states = {"confmat", "preds", "target"}
        assert read - states - {"_update_state", "validate_args"} <= set(options), (
            update.__qualname__
        )
        kinds = update.__qualname__.split(".")[0]
        assert getattr(tc, kinds).update is update


def test_given_groups_are_kept(device: str) -> None:
    given = [["f1", "accuracy"], ["micro"]]
    ours, theirs = make("multiclass", device, compute_groups=given)[0], alone("multiclass", device)
    for seed in range(3):
        inputs = scores(device, seed)
        ours.update(*inputs)
        theirs.update(*inputs)
        assert list(ours.compute_groups.values())[:2] == given
        assert all(len(names) == 1 for names in list(ours.compute_groups.values())[2:])
        same(ours.compute(), theirs.compute())
        same(ours(*inputs), theirs(*inputs))
    with pytest.raises(ValueError, match="does not match a metric"):
        sf.MetricCollection(multiclass(sf, sc), compute_groups=[["nonsense"]])


def test_given_groups_of_wrappers_that_show_the_states_inside(device: str) -> None:
    def make_group(root: Any, c: Any) -> Any:
        kinds = {"f1": c.MulticlassF1Score, "accuracy": c.MulticlassAccuracy}
        metrics = {
            name: root.ClasswiseWrapper(kind(CLASSES, average=None), prefix=name)
            for name, kind in kinds.items()
        }
        given = [["accuracy", "f1"]]  # ours leads
        return root.MetricCollection(metrics, compute_groups=given).to(device)

    ours, theirs = make_group(sf, sc), make_group(tm, tc)
    for seed in range(3):
        kept = ours["accuracy"].metric.tp
        before = kept.clone()
        for collection in (ours, theirs):
            collection.update(*scores(device, seed))
        same(ours.compute(), theirs.compute())
        torch.testing.assert_close(kept, before)
    inputs = scores(device, 3)
    same(ours(*inputs), theirs(*inputs))
    same(ours.compute(), theirs.compute())


def test_metrics_that_have_seen_something_stay_apart(device: str) -> None:
    ours, theirs = make("multiclass", device)
    for collection in (ours, theirs):
        collection._modules["f1"].update(*scores(device, 7))
        collection.update(*scores(device, 0))
        collection.update(*scores(device, 1))
    same(ours.compute(), theirs.compute())
    assert frozenset({"f1"}) in groups(ours)
    ours.reset()
    ours.update(*scores(device, 0))
    assert frozenset({"f1"}) not in groups(ours)
    ours.reset()
    ours["f1"].update(*scores(device, 7))
    ours.update(*scores(device, 1))
    expected = tc.MulticlassF1Score(CLASSES).to(device)
    expected.update(*scores(device, 7))
    expected.update(*scores(device, 1))
    torch.testing.assert_close(ours.compute()["f1"], expected.compute())


@pytest.mark.parametrize("step", ["update", "forward"])
@pytest.mark.parametrize("name", ["accuracy", "f1"])
def test_metrics_merged_before_a_batch_stay_apart(name: str, step: str) -> None:
    """A merge is no update, but what it brought is that metric's alone."""
    ours, theirs = make("multiclass", "cpu")
    for again in (False, True):
        for collection in (ours, theirs):
            other = collection[name].clone()
            other.update(*scores("cpu", 7))
            collection[name].merge_state(other)
            getattr(collection, step)(*scores("cpu", 0))
        same(ours.compute(), theirs.compute())
        assert frozenset({name}) in groups(ours), again
        for collection in (ours, theirs):
            collection.reset()
    ours.update(*scores("cpu", 0))
    assert frozenset({name}) not in groups(ours)


@pytest.mark.parametrize(
    "option", [{"top_k": 2}, {"ignore_index": 0}, {"average": "micro"}], ids=str
)
def test_options_that_are_set_later_part_metrics(option: dict[str, Any], device: str) -> None:
    ours, theirs = make("multiclass", device)
    for collection in (ours, theirs):
        for name, value in option.items():
            setattr(collection["accuracy"], name, value)
        collection.update(*scores(device, 0))
        collection(*scores(device, 1))
    same(ours.compute(), theirs.compute())


def test_merged_metrics_of_ours_tell_without_their_values() -> None:
    """As on a GPU, where the host would have to wait."""
    metrics = {"a": sc.MulticlassAccuracy(CLASSES), "b": sc.MulticlassAccuracy(CLASSES)}
    other = sc.MulticlassAccuracy(CLASSES).to("meta")
    ours = sf.MetricCollection(metrics).to("meta")
    assert list(ours._teams_to_come()) == [["a", "b"]]
    ours["a"].merge_state(other)
    assert list(ours._teams_to_come()) == [["a"], ["b"]]
    ours.reset()
    assert list(ours._teams_to_come()) == [["a", "b"]]


def test_added_metrics(device: str) -> None:
    """What shared its states before goes on doing so; what comes later does not join them."""
    ours, theirs = make("multiclass", device)[0], alone("multiclass", device)
    for collection, c in ((ours, sc), (theirs, tc)):
        collection.update(*scores(device, 0))
        collection.add_metrics({"late": c.MulticlassAccuracy(CLASSES).to(device)})
        for seed in (1, 2):
            collection.update(*scores(device, seed))
        collection(*scores(device, 3))
    same(ours.compute(), theirs.compute())
    assert frozenset({"late"}) in groups(ours)
    assert len(groups(ours)) == 4


def test_added_metrics_beside_states_that_grow_in_place(device: str) -> None:
    """TorchMetrics' collection counts the second batch twice."""
    made = tc.MulticlassConfusionMatrix(CLASSES), tc.MulticlassCohenKappa(CLASSES)
    collection = sf.MetricCollection(dict(zip("ab", made, strict=True))).to(device)
    collection.update(*scores(device, 0))
    collection.add_metrics({"late": tc.MulticlassRecall(CLASSES).to(device)})
    collection.update(*scores(device, 1))
    counted = sum(scores(device, seed)[1].numel() for seed in (0, 1))
    assert [int(collection[name].confmat.sum()) for name in "ab"] == [counted] * 2


def put(collection: Any, name: str, metric: tm.Metric, how: str) -> None:
    if how == "item":
        collection[name] = metric
    elif how == "attribute":
        setattr(collection, name, metric)
    else:
        collection.add_module(name, metric)


@pytest.mark.parametrize("step", ["update", "forward"])
@pytest.mark.parametrize("batches_before", [0, 2])
@pytest.mark.parametrize("given", [True, False, [["accuracy", "recall"]]], ids=str)
@pytest.mark.parametrize("how", ["item", "attribute", "add_module"])
def test_metrics_that_come_as_a_dictionary_takes_them(
    how: str, given: Any, batches_before: int, step: str, device: str
) -> None:
    made = {"accuracy": sc.MulticlassAccuracy(CLASSES), "recall": tc.MulticlassRecall(CLASSES)}
    collection = sf.MetricCollection(made, compute_groups=given).to(device)
    added = tc.MulticlassPrecision(CLASSES).to(device)
    alone = {name: metric.clone() for name, metric in {**made, "precision": added}.items()}
    for i in range(batches_before):
        collection.update(*scores(device, i))
        for name in made:
            alone[name].update(*scores(device, i))
    put(collection, "precision", added, how)
    for i in range(2, 4):
        values = getattr(collection, step)(*scores(device, i))
        each = {name: metric(*scores(device, i)) for name, metric in alone.items()}
        if values is not None:
            same(values, each)
    same(collection.compute(), {name: metric.compute() for name, metric in alone.items()})


def test_a_metric_that_is_replaced_no_longer_leads(device: str) -> None:
    made = {
        "accuracy": sc.MulticlassAccuracy(CLASSES),
        "recall": sc.MulticlassAccuracy(CLASSES, average="none"),
    }
    collection = sf.MetricCollection(made).to(device)
    collection(*scores(device, 0))
    assert len(collection.compute_groups) == 1
    collection["accuracy"] = sc.MulticlassAccuracy(CLASSES, top_k=2).to(device)
    first = sc.MulticlassAccuracy(CLASSES, average="none").to(device)
    first.update(*scores(device, 0))
    second = sc.MulticlassAccuracy(CLASSES, top_k=2).to(device)
    expected = {"accuracy": second(*scores(device, 1)), "recall": first(*scores(device, 1))}
    same(collection(*scores(device, 1)), expected)
    same(collection.compute(), {"accuracy": second.compute(), "recall": first.compute()})
    del collection["accuracy"]
    collection.update(*scores(device, 2))
    first.update(*scores(device, 2))
    same(collection.compute(), {"recall": first.compute()})


def counted(metric: tm.Metric) -> int:
    """How many samples a confusion matrix has seen."""
    return int(metric.confmat.sum())


@pytest.mark.parametrize("given", [True, [["a", "b"]]], ids=str)
def test_what_shares_states_still_does_when_others_come_and_go(given: Any, device: str) -> None:
    """TorchMetrics' add to their states in place: each would count for the others as well."""
    made = {name: tc.MulticlassConfusionMatrix(CLASSES) for name in "ab"}
    collection = sf.MetricCollection(made, compute_groups=given).to(device)
    batch = scores(device, 0)
    size = batch[1].numel()
    collection.update(*batch)
    collection["new"] = sc.MulticlassAccuracy(CLASSES).to(device)
    for metric in collection.values():  # copies, as ever
        metric.update(*batch)
    assert [counted(collection[name]) for name in "ab"] == [2 * size] * 2
    kept = collection["a"]
    collection["a"] = tc.MulticlassConfusionMatrix(CLASSES).to(device)
    collection.update(*batch)
    assert counted(kept) == 2 * size
    assert [counted(collection[name]) for name in "ab"] == [size, 3 * size]


@pytest.mark.parametrize("given", [True, [["a", "b"], ["c"]]], ids=str)
@pytest.mark.parametrize("gone", ["a", "b", "c"])
def test_metrics_that_go(gone: str, given: Any, device: str) -> None:
    made = {name: tc.MulticlassConfusionMatrix(CLASSES) for name in "abc"}
    collection = sf.MetricCollection(made, compute_groups=given).to(device)
    collection.update(*scores(device, 0))
    alone = collection.pop(gone)
    alone.update(*scores(device, 1))
    collection.update(*scores(device, 1))
    assert gone not in collection.compute()
    assert {counted(metric) for metric in [alone, *collection.values()]} == {2 * 24 * 6}
    collection.reset()
    assert {counted(metric) for metric in collection.values()} == {0}


@pytest.mark.parametrize("step", ["update", "forward"])
def test_a_metric_of_another_name(step: str, device: str) -> None:
    collection = sf.MetricCollection({"acc": sc.MulticlassAccuracy(CLASSES)}).to(device)
    collection.update(*scores(device, 0))
    collection["accuracy"] = collection.pop("acc")
    getattr(collection, step)(*scores(device, 1))
    alone = sc.MulticlassAccuracy(CLASSES).to(device)
    alone.update(*scores(device, 0))
    alone.update(*scores(device, 1))
    same(collection.compute(), {"accuracy": alone.compute()})


def test_a_checkpoint_after_a_change(device: str) -> None:
    def collection(*names: str) -> Any:
        made = {name: sc.MulticlassAccuracy(CLASSES) for name in names}
        for metric in made.values():
            metric.persistent(True)
        return sf.MetricCollection(made).to(device)

    saved = collection("a", "c")
    saved["a"].update(*scores(device, 0))  # before groups are formed
    saved["c"].update(*scores(device, 1))
    expected = saved.compute()
    loaded = collection("a", "b")
    loaded.update(*scores(device, 2))
    del loaded["b"]
    loaded["c"] = sc.MulticlassAccuracy(CLASSES).to(device)
    loaded["c"].persistent(True)
    loaded.load_state_dict(saved.state_dict())
    same(loaded.compute(), expected)
    loaded["d"] = sc.MulticlassAccuracy(CLASSES).to(device)
    values = loaded(*scores(device, 3))
    assert len(loaded.compute_groups) == 3
    assert values["a"] == values["d"]
    assert loaded.compute()["a"] != loaded.compute()["d"]


@pytest.mark.parametrize("change", ["add", "remove"])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_compiled_code_notices_that_metrics_have_changed(change: str, fullgraph: bool) -> None:
    collection = sf.MetricCollection({name: sc.MulticlassAccuracy(CLASSES) for name in "ab"})
    batch = scores("cpu", 0)
    collection.update(*batch)
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda *batch: collection.update(*batch), backend="eager", fullgraph=fullgraph
    )
    if change == "add":
        collection["new"] = sc.MulticlassAccuracy(CLASSES)
    else:
        del collection["b"]
    if fullgraph:
        with pytest.raises(Exception, match="call it once before it is compiled"):
            compiled(*batch)
        collection.update(*batch)
        torch._dynamo.reset()
    compiled(*batch)
    metric = sc.MulticlassAccuracy(CLASSES)
    metric.update(*batch)
    expected = dict.fromkeys(collection.keys(), metric.compute())
    same(collection.compute(), expected)
