"""MetricCollection beside TorchMetrics' own on the same batches."""

from __future__ import annotations

import inspect
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
    make,
    multiclass,
    probabilities,
    same,
    scores,
)


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
    getattr(collection, step)(preds, target)  # loads the kernels, which may wait
    collection.reset()
    target[3, 2] = 9
    torch.cuda._sleep(1_000_000_000)  # or a metric would raise what the one before it found
    getattr(collection, step)(preds, target)
    torch.cuda.synchronize()
    with pytest.raises(RuntimeError, match="9"):
        sf.check_errors()
    values = collection.compute()
    assert all(value.isnan().all() for value in values.values())
    collection.reset()
    target[3, 2] = 0
    collection.update(preds, target)
    assert not any(value.isnan().any() for value in collection.compute().values())


def test_signatures_are_torchmetrics() -> None:
    """As editors, `help` and tools that build from dotted paths read them."""
    for name in ("__init__", "add_metrics"):
        ours, theirs = (
            inspect.signature(getattr(kind, name)).parameters.values()
            for kind in (sf.MetricCollection, tm.MetricCollection)
        )
        assert [(p.name, p.kind) for p in ours] == [(p.name, p.kind) for p in theirs]
