"""MetricCollection beside TorchMetrics' own on the same batches."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchmetrics as tm
import torchmetrics.classification as tc
from torch import Tensor

import syncfree as sf
import syncfree.classification as sc
from syncfree._compute_groups import UPDATES, group_alike

CLASSES = 5


def scores(device: str, seed: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    preds, target = (
        torch.randn(24, CLASSES, 6, generator=g),
        torch.randint(0, 5, (24, 6), generator=g),
    )
    return preds.softmax(1).to(device), target.to(device)


def probabilities(device: str, seed: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    preds, target = torch.rand(24, CLASSES, generator=g), torch.rand(24, CLASSES, generator=g) < 0.4
    return preds.to(device), target.long().to(device)


def images(device: str, seed: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.rand(2, 3, 8, 8, generator=g).to(device), torch.rand(2, 3, 8, 8, generator=g).to(
        device
    )


Metrics = Callable[[Any, Any], Any]  # of a root module and a module of classification metrics


def multiclass(root: Any, c: Any, **options: Any) -> dict[str, Any]:
    return {
        "f1": c.MulticlassF1Score(CLASSES, **options),
        "accuracy": c.MulticlassAccuracy(CLASSES, **options),
        "precision": c.MulticlassPrecision(CLASSES, average="none", **options),
        "specificity": c.MulticlassSpecificity(CLASSES, average="weighted", **options),
        "micro": c.MulticlassAccuracy(CLASSES, average="micro", **options),
        "micro recall": c.MulticlassRecall(CLASSES, average="micro", **options),
        "other": c.MulticlassAccuracy(CLASSES, ignore_index=1),
    }


def multilabel(root: Any, c: Any) -> list[Any]:
    return [
        c.MultilabelF1Score(CLASSES),
        c.MultilabelAccuracy(CLASSES, average="micro"),
        c.MultilabelHammingDistance(CLASSES, threshold=0.3),
        c.MultilabelAUROC(CLASSES, thresholds=7),
        c.MultilabelAveragePrecision(CLASSES, thresholds=7),
        c.MultilabelROC(CLASSES, thresholds=9),
    ]


def binary(root: Any, c: Any) -> list[Any]:
    return [
        c.BinaryAccuracy(),
        c.BinaryPrecision(),
        c.BinaryConfusionMatrix(),
        c.BinaryCohenKappa(),
        c.BinaryJaccardIndex(),
        c.BinaryAUROC(),
        c.BinaryAveragePrecision(),
    ]


def mixed(root: Any, c: Any) -> dict[str, Any]:
    return {
        "psnr": root.image.PeakSignalNoiseRatio(1.0),
        "per image": root.image.PeakSignalNoiseRatio(1.0, dim=(1, 2, 3), reduction="none"),
        "other range": root.image.PeakSignalNoiseRatio(2.0),
        "mse": root.MeanSquaredError(),
        "mae": root.MeanAbsoluteError(),
    }


def samplewise(root: Any, c: Any) -> dict[str, Any]:
    return multiclass(root, c, multidim_average="samplewise")


CASES: dict[str, tuple[Metrics, Callable[[str, int], tuple[Tensor, Tensor]]]] = {
    "multiclass": (multiclass, scores),
    "samplewise": (samplewise, scores),
    "multilabel": (multilabel, probabilities),
    "binary": (binary, probabilities),
    "images": (mixed, images),
}
every_case = pytest.mark.parametrize("case", CASES)


def make(case: str, device: str, **options: Any) -> tuple[Any, Any]:
    metrics, _ = CASES[case]
    ours = sf.MetricCollection(metrics(sf, sc), **options)
    theirs = tm.MetricCollection(metrics(tm, tc), **options)
    return ours.to(device), theirs.to(device)


def alone(case: str, device: str, **options: Any) -> Any:
    """TorchMetrics' metrics, each by itself: its groups had errors in earlier versions."""
    return make(case, device, compute_groups=False, **options)[1]


def same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert list(ours) == list(theirs)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def groups(collection: Any) -> set[frozenset[str]]:
    return {frozenset(names) for names in collection.compute_groups.values()}


@every_case
@pytest.mark.parametrize("compute_groups", [True, False])
def test_same_values(case: str, compute_groups: bool, device: str) -> None:
    names = {"prefix": "a/", "postfix": "/b"}
    ours = make(case, device, compute_groups=compute_groups, **names)[0]
    theirs = alone(case, device, **names)
    inputs = CASES[case][1]
    for round_ in range(2):
        for seed in range(5):
            preds, target = inputs(device, 10 * round_ + seed)
            if seed in (1, 2, 4):
                same(ours(preds, target), theirs(preds, target))
            else:
                ours.update(preds, target)
                theirs.update(preds=preds, target=target)
            for name, metric in theirs._modules.items():
                assert ours._modules[name].update_count == metric.update_count
            if seed > 1:
                same(ours.compute(), theirs.compute())
        for name, metric in theirs._modules.items():
            states = {state: getattr(ours._modules[name], state) for state in metric.metric_state}
            torch.testing.assert_close(states, metric.metric_state)
        ours.reset()
        theirs.reset()


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


@pytest.mark.needs_cuda
@pytest.mark.parametrize("step", ["update", "forward"])
def test_never_waits(step: str) -> None:
    """From the first batch on, in which TorchMetrics compares."""
    inputs = scores("cuda", 0)
    torch.cuda.synchronize()
    metrics = sf.MetricCollection(
        {
            name: metric
            for name, metric in multiclass(sf, sc).items()
            if name != "micro recall"  # led by ours, so that none of TorchMetrics' updates runs
        }
    ).to("cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(2):
            getattr(metrics, step)(*inputs)
            metrics.compute()
            metrics.reset()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.needs_cuda
@pytest.mark.parametrize("step", ["update", "forward"])
def test_a_captured_step_goes_on_counting(step: str) -> None:
    def metrics(c: Any) -> list[Any]:
        return [c.MulticlassAccuracy(CLASSES), c.MulticlassF1Score(CLASSES)]

    preds, target = scores("cuda", 0)
    ours = sf.MetricCollection(metrics(sc)).to("cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        getattr(ours, step)(preds, target)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        getattr(ours, step)(preds, target)
    for _ in range(2):
        ours.reset()
        theirs = tm.MetricCollection(metrics(tc), compute_groups=False).to("cuda")
        for seed in range(3):
            fresh = scores("cuda", seed)
            preds.copy_(fresh[0])
            target.copy_(fresh[1])
            graph.replay()
            theirs.update(*fresh)
            same(ours.compute(), theirs.compute())


@every_case
def test_one_update_for_a_group(case: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = make(case, device)[0]
    calls: list[str] = []
    for name, metric in ours._modules.items():

        def counted(*args: Any, _name: str = name, _update: Any = metric.update, **kw: Any) -> None:
            calls.append(_name)
            _update(*args, **kw)

        counted.__wrapped__ = metric.update.__wrapped__  # type: ignore[attr-defined]
        metric.__dict__["update"] = counted
    for i in range(3):
        ours.update(*CASES[case][1](device, i))
        assert len(calls) == len(ours.compute_groups)
        calls.clear()
    values = ours(*CASES[case][1](device, 0))
    assert len(calls) <= len(ours.compute_groups)
    assert values.keys() == ours.keys()


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


def test_states_are_shared_until_looked_at(device: str) -> None:
    ours, theirs = make("multiclass", device)[0], alone("multiclass", device)
    modules = ours._modules
    ours.update(*scores(device, 0))
    assert modules["f1"].tp is modules["accuracy"].tp
    assert ours["f1"].tp is not modules["accuracy"].tp  # a copy
    ours.items()
    ours.update(*scores(device, 1))
    assert modules["f1"].tp is modules["accuracy"].tp
    place = modules["accuracy"].tp.data_ptr()
    ours.reset()
    assert modules["f1"].tp is modules["accuracy"].tp
    assert modules["accuracy"].tp.data_ptr() == place
    for metric in modules.values():
        assert metric.update_count == 0
    ours.update(*scores(device, 2))
    theirs.update(*scores(device, 2))
    same({k: m.compute() for k, m in ours.items()}, {k: m.compute() for k, m in theirs.items()})


@pytest.mark.parametrize(
    "duplicate",
    [
        copy.deepcopy,
        lambda c: pickle.loads(pickle.dumps(c)),
        lambda c: c.clone(prefix="other/"),
    ],
    ids=["deepcopy", "pickle", "clone"],
)
@pytest.mark.parametrize("seen", [0, 1])
def test_copies(duplicate: Callable[[Any], Any], seen: int, device: str) -> None:
    ours, theirs = make("multiclass", device)
    for seed in range(seen):
        ours.update(*scores(device, seed))
        theirs.update(*scores(device, seed))
    before = duplicate(ours), duplicate(theirs)
    for collection in before:
        collection.update(*scores(device, 5))
        collection(*scores(device, 6))
    same(before[0].compute(), before[1].compute())
    if seen:
        same(ours.compute(), theirs.compute())
    assert groups(before[0]) == {frozenset(g) for g in before[1].compute_groups.values()}


def test_checkpoints_both_ways(device: str) -> None:
    ours, theirs = make("multiclass", device)
    for collection in (ours, theirs):
        collection.persistent(True)
        collection.update(*scores(device, 0))
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    torch.testing.assert_close(dict(ours.state_dict()), dict(theirs.state_dict()))
    for source in (ours, theirs):
        for loaded in make("multiclass", device):
            loaded.persistent(True)
            loaded.load_state_dict(source.state_dict())
            loaded.update(*scores(device, 1))
            whole = make("multiclass", device)[1]
            whole.update(*scores(device, 0))
            whole.update(*scores(device, 1))
            same(loaded.compute(), whole.compute())
            assert groups(loaded) == groups(whole)


@pytest.mark.parametrize("seen", [0, 1])
def test_checkpoint_of_metrics_that_went_apart(seen: int, device: str) -> None:
    def metrics() -> dict[str, Any]:
        kinds = sc.MulticlassAccuracy, sc.MulticlassAccuracy, tc.MulticlassF1Score
        return {name: kind(CLASSES) for name, kind in zip("abc", kinds, strict=True)}

    apart = metrics()
    for i, metric in enumerate(apart.values()):
        metric.persistent(True)
        metric.to(device).update(*scores(device, i // 2))
    saved = tm.MetricCollection(apart, compute_groups=False).state_dict()
    collection = sf.MetricCollection(metrics()).to(device)
    collection.persistent(True)
    for i in range(seen):
        collection.update(*scores(device, 10 + i))
    collection.load_state_dict(saved)
    collection.update(*scores(device, 5))
    for metric in apart.values():
        metric.update(*scores(device, 5))
    same(collection.compute(), {name: metric.compute() for name, metric in apart.items()})
    assert frozenset({"c"}) in groups(collection)


@pytest.mark.parametrize("names", [["a", "b"], ["b", "a"]])
def test_nested(names: list[str], device: str) -> None:
    """Each kind inside the other."""
    results = []
    for outer in (sf.MetricCollection, tm.MetricCollection):
        for inner, c in ((sf.MetricCollection, sc), (tm.MetricCollection, tc)):
            parts = [
                inner(
                    [c.MulticlassAccuracy(5, average=k), c.MulticlassF1Score(5, average=k)],
                    postfix=f"_{n}",
                )
                for n, k in zip(names, ("macro", "micro"), strict=True)
            ]
            both = outer(parts, prefix="x/").to(device)
            both.update(*scores(device, 0))
            batch = both(*scores(device, 1))
            assert len(both.compute_groups) == 2
            results.append({"all": both.compute(), "batch": batch})
    for result in results[:-1]:
        torch.testing.assert_close(result, results[-1])


def test_values_that_are_dictionaries(device: str) -> None:
    """Of wrappers: their keys, made different where two would give the same."""

    def collection(root: Any, c: Any, both: bool) -> Any:
        wrap = tm.wrappers.ClasswiseWrapper
        metrics = {"acc": wrap(c.MulticlassAccuracy(5, average=None), prefix="k-")}
        if both:
            metrics["f1"] = wrap(c.MulticlassF1Score(5, average=None), prefix="k-")
        return root.MetricCollection(metrics, prefix="p-")

    for both in (False, True):
        ours, theirs = collection(sf, sc, both).to(device), collection(tm, tc, both).to(device)
        same(ours(*scores(device, 0)), theirs(*scores(device, 0)))
        ours.update(*scores(device, 1))
        theirs.update(*scores(device, 1))
        same(ours.compute(), theirs.compute())
    inner = {"in": collection(sf, sc, True)}, {"in": collection(tm, tc, True)}
    same(*(x(*scores("cpu", 0)) for x in map(sf.MetricCollection, inner)))


def test_arguments_by_name(device: str) -> None:
    collection = sf.MetricCollection([sc.MulticlassAccuracy(5), tm.MeanMetric()]).to(device)
    preds, target = scores(device, 0)
    value = torch.tensor(3.0, device=device)
    collection.update(preds=preds, target=target, value=value)
    values = collection(preds=preds, target=target, value=value)
    accuracy = tc.MulticlassAccuracy(5).to(device)(preds, target)
    same(values, {"MulticlassAccuracy": accuracy, "MeanMetric": value})
    same(collection.compute(), values)


def test_an_error_in_the_middle_leaves_the_counts(device: str) -> None:
    ours = make("multiclass", device)[0]
    ours(*scores(device, 0))
    before = ours.compute()
    preds, target = scores(device, 1)
    for step in (ours.update, ours):
        with pytest.raises((ValueError, RuntimeError)):
            step(preds, target[:3])
        for metric in ours.values(copy_state=False):
            metric._computed = None
        same(ours.compute(), before)
    assert ours._modules["f1"].tp is ours._modules["accuracy"].tp


def test_a_value_that_fails_loses_no_batch(device: str) -> None:
    class Failing(tc.MulticlassRecall):
        def compute(self) -> Tensor:
            raise ArithmeticError("no value")

    collection = sf.MetricCollection([sc.MulticlassAccuracy(5), Failing(5)]).to(device)
    accuracy = tc.MulticlassAccuracy(5).to(device)
    for seed in range(3):
        accuracy.update(*scores(device, seed))
        with pytest.raises(ArithmeticError, match="no value"):
            collection(*scores(device, seed))
    torch.testing.assert_close(collection["MulticlassAccuracy"].compute(), accuracy.compute())


def test_gradients_of_batch_values(device: str) -> None:
    """The step of a group computes with gradients, as each metric's own does."""
    preds, target = probabilities(device, 0)
    grads = []
    for root, c in ((sf, sc), (tm, tc)):
        leaf = preds.clone().requires_grad_()
        collection = root.MetricCollection(
            [c.BinaryAUROC(), c.BinaryAveragePrecision(), root.MeanSquaredError()]
        ).to(device)
        values = collection(leaf, target)
        values["MeanSquaredError"].backward()
        grads.append(leaf.grad)
        if root is sf:
            assert not any(s.requires_grad for s in collection._modules["BinaryAUROC"].preds)
    torch.testing.assert_close(*grads)


def test_inference_mode(device: str) -> None:
    """Lightning resets and steps inside of it and outside of it."""
    ours, theirs = make("multiclass", device)
    for collection in (ours, theirs):
        with torch.inference_mode():
            collection.reset()
            collection(*scores(device, 0))
        collection(*scores(device, 1))
        collection.update(*scores(device, 2))
        with torch.inference_mode():
            collection.update(*scores(device, 3))
    same(ours.compute(), theirs.compute())


def test_bad_labels_reach_every_metric_of_ours() -> None:
    collection = sf.MetricCollection(
        {"a": sc.MulticlassAccuracy(5), "b": sc.MulticlassAccuracy(5, average="none")}
    )
    preds, target = scores("cpu", 0)
    target[3, 2] = 9
    for step in (collection.update, collection):
        with pytest.raises(RuntimeError, match="9"):
            step(preds, target)


@pytest.mark.needs_cuda
@pytest.mark.parametrize("step", ["update", "forward"])
def test_bad_labels_on_cuda_make_all_nan(step: str) -> None:
    collection = sf.MetricCollection(
        {"a": sc.MulticlassAccuracy(5), "b": sc.MulticlassAccuracy(5, average="none")}
    ).to("cuda")
    preds, target = scores("cuda", 0)
    target[3, 2] = 9
    getattr(collection, step)(preds, target)
    with pytest.raises(RuntimeError, match="9"):
        sf.check_errors()
    values = collection.compute()
    assert all(value.isnan().all() for value in values.values())
    collection.reset()
    target[3, 2] = 0
    collection.update(preds, target)
    assert not any(value.isnan().any() for value in collection.compute().values())
