"""The states of both SSIM classes: where they lie, what is added, copies, collections."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torchmetrics import MetricCollection

from cases import LAYOUTS, Layout
from similarity_classes import (
    SimilarityClass,
    each_class,
    each_reduction,
    exact_stream,
    flat_states,
    same,
    same_states,
)


@each_class
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
def test_states_of_another_dtype(kind: SimilarityClass, dtype: torch.dtype, device: str) -> None:
    ours, theirs = kind.pair(device)
    batches = kind.batches(device, torch.float64)
    ours.set_dtype(dtype)
    exact = exact_stream(theirs, batches)
    for batch in batches[1:]:
        ours.update(*batch)
    assert ours(*batches[0]).dtype == ours.compute().dtype == dtype
    # TorchMetrics rounds the exponents of MS-SSIM to float32.
    tolerance = 1e-8 if dtype == torch.float64 else 2e-3
    torch.testing.assert_close(ours.compute().double(), exact, rtol=0, atol=tolerance)


@each_class
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_layouts_give_the_same_bits(kind: SimilarityClass, layout: Layout, device: str) -> None:
    plain, other = kind.pair(device)[0], kind.pair(device)[0]
    for preds, target in kind.batches(device):
        plain.update(preds, target)
        other.update(layout.apply(preds), target)
    assert torch.equal(plain.similarity, other.similarity)


@each_class
def test_forward_and_update_add_the_same_bits(kind: SimilarityClass, device: str) -> None:
    one, two, three = (kind.pair(device)[0] for _ in range(3))
    for preds, target in kind.batches(device):
        one.update(preds, target)
        two(preds, target)
        three(preds.clone().requires_grad_(), target)
    assert torch.equal(one.similarity, two.similarity)
    assert torch.equal(one.similarity, three.similarity)
    assert not three.similarity.requires_grad


@each_class
@each_reduction
def test_lists_keep_no_graph(kind: SimilarityClass, reduction: Any, device: str) -> None:
    metric = kind.pair(device, reduction=reduction)[0]
    preds, target = kind.batches(device)[0]
    for step in (metric, metric.update):
        step(preds.clone().requires_grad_(), target)
    assert not any(state.requires_grad for state in flat_states(metric))


@each_class
def test_results_are_the_callers_own(kind: SimilarityClass, device: str) -> None:
    for reduction in ("elementwise_mean", "sum", "none"):
        metric = kind.pair(device, reduction=reduction)[0]
        batch = kind.batches(device)[0]
        value = metric(*batch)
        before = [state.clone() for state in flat_states(metric)]
        value.mul_(5)
        metric.compute().mul_(5)
        assert all(map(torch.equal, flat_states(metric), before))
        total = metric.compute().clone()
        metric.reset()
        metric.update(*batch)
        torch.testing.assert_close(total / 5, metric.compute())


@each_class
def test_storage_stays_put(kind: SimilarityClass, device: str) -> None:
    metric = kind.pair(device)[0]
    places = [metric.similarity.data_ptr(), metric.total.data_ptr()]
    for step in (metric, metric.update):
        for batch in kind.batches(device):
            step(*batch)
        metric.compute()
        metric.reset()
    with torch.inference_mode():
        metric.reset()
        metric(*kind.batches(device)[0])
    metric.update(*kind.batches(device)[1])
    assert [metric.similarity.data_ptr(), metric.total.data_ptr()] == places
    assert metric.total == 5


@each_class
@each_reduction
def test_made_in_inference_mode(kind: SimilarityClass, reduction: Any, device: str) -> None:
    batches = kind.batches(device)
    with torch.inference_mode():
        metric = kind.pair(device, reduction=reduction)[0]
        metric.update(*batches[0])
    metric.update(*batches[1])
    other = kind.pair(device, reduction=reduction)[0]
    for batch in batches[:2]:
        other.update(*batch)
    same(metric.compute(), other.compute(), 0.0)


@each_class
def test_an_empty_batch_changes_nothing(kind: SimilarityClass, device: str) -> None:
    metric = kind.pair(device)[0]
    preds, target = kind.batches(device)[0]
    metric.update(preds, target)
    want = metric.compute().clone()
    assert metric(preds[:0], target[:0]).isnan()
    metric.update(preds[:0], target[:0])
    assert torch.equal(metric.compute(), want)
    assert metric.total == 2


@each_class
@each_reduction
def test_copies_and_pickles(kind: SimilarityClass, reduction: Any, device: str) -> None:
    metric = kind.pair(device, reduction=reduction)[0]
    batches = kind.batches(device)
    metric.update(*batches[0])
    for other in (copy.deepcopy(metric), pickle.loads(pickle.dumps(metric)), metric.clone()):
        same(other.compute(), metric.compute(), 0.0)
        other.update(*batches[1])
        assert (other.update_count, metric.update_count) == (2, 1)


@each_class
@pytest.mark.parametrize("reduction", ["elementwise_mean", "none"])
def test_state_dict_both_ways(kind: SimilarityClass, reduction: str, device: str) -> None:
    ours, theirs = kind.pair(device, reduction=reduction)
    for metric in (ours, theirs):
        metric.persistent(True)
        metric.update(*kind.batches(device)[0])
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    to_theirs, to_ours = kind.pair(device, reduction=reduction)[::-1]
    for source, loaded in ((ours, to_theirs), (theirs, to_ours)):
        loaded.persistent(True)
        loaded.load_state_dict(source.state_dict())
        same_states(loaded, source, 0.0)


@each_class
@pytest.mark.parametrize("reduction", ["elementwise_mean", "none"])
def test_in_a_collection_with_torchmetrics(
    kind: SimilarityClass, reduction: str, device: str
) -> None:
    """Both end in one compute group, whose members share their states."""
    ours, theirs = kind.pair(device, reduction=reduction)
    collection = MetricCollection({"ours": ours, "theirs": theirs}).to(device)
    alone = kind.pair(device, reduction=reduction)[1]
    for i, batch in enumerate(kind.batches(device) * 2):
        alone.update(*batch)
        if i % 2:
            collection(*batch)
        else:
            collection.update(*batch)
        for value in collection.compute().values():
            same(value, alone.compute())
    assert len(collection.compute_groups) == 1


@each_class
@pytest.mark.parametrize("reduction", ["elementwise_mean", "none"])
def test_merge_state(kind: SimilarityClass, reduction: str, device: str) -> None:
    one, two, both = (kind.pair(device, reduction=reduction)[0] for _ in range(3))
    first, second = kind.batches(device)[:2]
    one.update(*first)
    two.update(*second)
    for batch in (first, second):
        both.update(*batch)
    one.merge_state(two)
    got, want = (
        torch.cat([state.reshape(-1) for state in flat_states(metric)]).sort().values
        for metric in (one, both)
    )
    torch.testing.assert_close(got, want)


@each_class
@each_reduction
def test_two_processes(kind: SimilarityClass, reduction: Any, device: str) -> None:
    """Stood in for by one that hears its own states twice."""
    metrics = kind.pair(
        device,
        reduction=reduction,
        dist_sync_fn=lambda state, group: [state, state.clone()],
        distributed_available_fn=lambda: True,
    )
    for metric in metrics:
        for batch in kind.batches(device):
            metric.update(*batch)
    same(metrics[0].compute(), metrics[1].compute())
    same_states(*metrics)
