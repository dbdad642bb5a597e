"""What holds for accuracy whatever the input: borders, threads, order, batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from accuracy_cases import AVERAGES, classes_last, make_elements, make_labels, mode
from accuracy_reference import check, elementwise
from drawing import examples
from requested_memory import most_requested, requested
from syncfree.functional.classification import (
    binary_accuracy,
    multiclass_accuracy,
    multilabel_accuracy,
)


def test_nothing_to_count_is_zero(device: str) -> None:
    for shape in ((0, 5), (0, 5, 4), (3, 5, 0)):
        preds = torch.rand(shape, device=device)
        target = torch.zeros(shape[:1] + shape[2:], dtype=torch.int64, device=device)
        for average, samplewise in itertools.product(AVERAGES, (False, True)):
            if samplewise and len(shape) < 3:
                continue
            sizes = (shape[:1] if samplewise else ()) + ((5,) if average in ("none", None) else ())
            want = np.zeros(sizes)
            check(multiclass_accuracy(preds, target, 5, average, 2, mode(samplewise)), want, device)
            elements = torch.zeros(shape, dtype=torch.int64, device=device)
            check(
                multilabel_accuracy(preds, elements, 5, 0.5, average, mode(samplewise)),
                want,
                device,
            )
        check(binary_accuracy(preds, preds.long()), np.zeros(()), device)
    ignored = torch.full((6,), -100, device=device)
    for average in AVERAGES:
        got = multiclass_accuracy(
            torch.rand(6, 3, device=device), ignored, 3, average, ignore_index=-100
        )
        check(got, np.zeros(3 if average in ("none", None) else ()), device)


def test_shapes_of_a_single_sample(device: str) -> None:
    """TorchMetrics drops the dimension of one sample but in multiclass, and fails in one case."""
    preds, target = (
        torch.rand(1, 3, 4, device=device),
        torch.ones(1, 3, 4, dtype=torch.int64, device=device),
    )
    per_sample = {"multidim_average": "samplewise"}
    assert binary_accuracy(preds, target, **per_sample).shape == ()
    shapes = {
        a: multilabel_accuracy(preds, target, 3, average=a, **per_sample).shape for a in AVERAGES
    }
    assert shapes == {"micro": (1,), "macro": (), "weighted": (), "none": (3,), None: (3,)}
    shapes = {
        a: multiclass_accuracy(preds, target[:, 0], 3, average=a, **per_sample).shape
        for a in AVERAGES
    }
    assert shapes == {"micro": (1,), "macro": (1,), "weighted": (1,), "none": (1, 3), None: (1, 3)}


def test_ignored_class_counts_where_it_is_predicted(device: str) -> None:
    target = torch.tensor([0, 1, 2, 2], device=device)
    preds = torch.tensor([0, 2, 2, 2], device=device)
    score = multiclass_accuracy(preds, target, 3, "macro", ignore_index=2)
    assert score.item() == pytest.approx(1 / 3)  # classes 0, 1 and, predicted for class 1, 2
    score = multiclass_accuracy(preds[[0, 2, 3]], target[[0, 2, 3]], 3, "macro", ignore_index=2)
    assert score.item() == 1.0


def test_more_dimensions_than_a_view_holds(device: str) -> None:
    """Nine for the scores and eight for the target: both must be merged, or neither."""
    scores = torch.randn(2, 3, 1, 2, 1, 2, 1, 1, 2, device=device)
    target = torch.randint(0, 3, (2, 1, 2, 1, 2, 1, 1, 2), device=device)
    for average in ("micro", "macro", "none"):
        got = multiclass_accuracy(scores, target, 3, average=average)
        flat = multiclass_accuracy(scores.flatten(2), target.flatten(1), 3, average=average)
        assert torch.equal(got, flat)


@pytest.mark.parametrize("average", AVERAGES)
def test_threads_leave_no_trace(average: str | None) -> None:
    preds, target = torch.randn(3, 21, 150, 170), torch.randint(0, 21, (3, 150, 170))
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3, 5):
            torch.set_num_threads(count)
            results += [
                multiclass_accuracy(p, t, 21, average)
                for p, t in ((preds, target), (classes_last(preds), target))
            ]
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(r, results[0]) for r in results)


@pytest.mark.fuzz
@examples(60)
@given(
    samples=st.integers(2, 60),
    classes=st.integers(2, 40),
    top_k=st.integers(1, 3),
    seed=st.integers(0, 2**32),
)
def test_order_and_split_do_not_matter(samples: int, classes: int, top_k: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    preds = torch.randint(0, 5, (samples, classes), generator=generator).float()
    target = torch.randint(0, classes, (samples,), generator=generator)
    order = torch.randperm(samples, generator=generator)
    k = min(top_k, classes)
    for average in AVERAGES:
        whole = multiclass_accuracy(preds, target, classes, average, k)
        assert torch.equal(
            multiclass_accuracy(preds[order], target[order], classes, average, k), whole
        )
    split = samples // 2
    hits = [
        multiclass_accuracy(preds[s], target[s], classes, "micro", k).double() * len(target[s])
        for s in (slice(0, split), slice(split, None), slice(None))
    ]
    assert (hits[0] + hits[1]).item() == pytest.approx(hits[2].item(), abs=1e-4)
    assert all(h.item() == pytest.approx(round(h.item()), abs=1e-4) for h in hits)


@pytest.mark.parametrize("kind", ["probabilities", "logits", "labels"])
def test_a_sample_has_the_same_bits_in_any_batch(kind: str, device: str) -> None:
    """Values of many samples are finished by another kernel than those of few."""
    dtype = torch.int64 if kind == "labels" else torch.float32
    preds = make_elements(kind, dtype, (40_000, 3, 2), device)
    target = make_labels((40_000, 3, 2), 2, -1, device)
    pair = preds, target

    def in_parts(call: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        return torch.cat([call(p, t) for p, t in zip(*(x.split(4_000) for x in pair), strict=True)])

    def binary(p: Tensor, t: Tensor) -> Tensor:
        return binary_accuracy(p, t, 0.4, "samplewise", -1)

    assert torch.equal(binary(*pair), in_parts(binary))
    for average in AVERAGES:

        def multilabel(p: Tensor, t: Tensor, average: str | None = average) -> Tensor:
            return multilabel_accuracy(p, t, 3, 0.4, average, "samplewise", -1)

        assert torch.equal(multilabel(*pair), in_parts(multilabel))
    want = elementwise(preds[:500], target[:500], "weighted", 0.4, True, -1)
    got = multilabel_accuracy(*pair, 3, 0.4, "weighted", "samplewise", -1)
    check(got[:500], want, device)


@pytest.mark.parametrize("positions", [1, 3, 40])
def test_one_logit_among_many_samples(positions: int, device: str) -> None:
    preds = torch.full((70_000, positions), 0.4, device=device)
    target = torch.zeros(70_000, positions, dtype=torch.int64, device=device)
    assert binary_accuracy(preds, target, multidim_average="samplewise").all()
    preds[-1, -1] = 1.5
    assert not binary_accuracy(preds, target, multidim_average="samplewise").any()
    preds[-1, -1] = 0.4
    assert binary_accuracy(preds, target, multidim_average="samplewise").all()


@pytest.mark.needs_cuda
def test_many_samples_need_no_memory() -> None:
    preds, target = torch.rand(2**20, 3, device="cuda"), torch.ones(2**20, 3, device="cuda")
    binary_accuracy(preds, target, multidim_average="samplewise")
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = requested()
    value = binary_accuracy(preds, target, multidim_average="samplewise")
    assert most_requested() - before <= value.nbytes + 2**20
