"""Counts and their reduction beside TorchMetrics' classes, over several batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from accuracy_cases import (
    LABELS,
    LAYOUTS,
    SCORES,
    classes_last,
    every_second,
    make_elements,
    make_labels,
    make_scores,
    torchmetrics_counts,
)
from accuracy_metric import Counting, Options, equal_counts
from accuracy_reference import ranking
from drawing import examples

Batch = tuple[Tensor, Tensor]
GLOBAL, SAMPLEWISE = False, True

# (C, ...) of batches that differ in N.
SHAPES = [(3,), (19,), (150,), (700,), (5, 3), (19, 67), (4, 1), (7, 4, 9)]


def distinct_scores(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> Tensor:
    """Which of equal scores torch.topk takes is not told."""
    return torch.rand(shape).argsort(1).to(dtype).to(device)


def follow(options: Options, batches: list[Batch], device: str) -> Counting:
    """The batches through our ops and TorchMetrics' class: equal states, equal value."""
    ours, theirs = Counting(options, device), options.theirs(device)
    for preds, target in batches:
        theirs.update(preds, target)
        ours.update(preds, target)
    equal_counts(ours.counts(), theirs)
    got, want = ours.compute(), theirs.compute()
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.squeeze(), want, rtol=1e-6, atol=1e-7)
    if not options.samplewise:
        again = Counting(options, device)
        for preds, target in batches:
            assert torch.equal(again.forward(preds, target), ours.function(preds, target))
        assert all(map(torch.equal, again.states, ours.states))
    return ours


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", SCORES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_multiclass_scores(
    shape: tuple[int, ...], dtype: torch.dtype, layout: Callable[[Tensor], Tensor], device: str
) -> None:
    if dtype == torch.bfloat16:
        shape = (min(shape[0], 256), *shape[1:])  # holds no more distinct scores
    classes = shape[0]
    for ignore in (None, 1, -100):
        batches = []
        for n in (4, 7, 2):
            preds = layout(distinct_scores((n, *shape), dtype, device))
            target = make_labels((n, *shape[1:]), classes, ignore, device)
            hit = torch.rand(target.shape, device=device) < 0.5
            batches.append((preds, torch.where(hit, preds.argmax(1), target)))
        for average, top_k, samplewise in itertools.product(
            ("micro", "macro", "weighted", "none"), (1, 2, 5), (GLOBAL, SAMPLEWISE)
        ):
            comparable = torchmetrics_counts(top_k, 1 + len(shape), states=True)
            if top_k > classes or (samplewise and len(shape) == 1) or not comparable:
                continue
            options = Options("multiclass", classes, average, top_k, samplewise, ignore)
            follow(options, batches, device)


@pytest.mark.parametrize("preds_dtype", [*LABELS, torch.bool], ids=str)
@pytest.mark.parametrize("target_dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
def test_multiclass_labels(
    preds_dtype: torch.dtype, target_dtype: torch.dtype, device: str
) -> None:
    classes = 2 if preds_dtype == torch.bool else 7
    for ignore in (None, 1, 100):
        batches = [
            (
                every_second(make_labels((n, 31), classes, None, device).to(preds_dtype)),
                make_labels((n, 31), classes, ignore, device).to(target_dtype),
            )
            for n in (3, 8)
        ]
        for average, samplewise in itertools.product(
            ("micro", "macro", "weighted", None), (GLOBAL, SAMPLEWISE)
        ):
            options = Options("multiclass", classes, average, 1, samplewise, ignore)
            follow(options, batches, device)


@pytest.mark.parametrize("kind", ["probabilities", "logits", "labels"])
@pytest.mark.parametrize("dtype", SCORES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
def test_elements(
    layout: Callable[[Tensor], Tensor], dtype: torch.dtype, kind: str, device: str
) -> None:
    dtype = torch.int64 if kind == "labels" else dtype
    for shape, ignore in itertools.product(((3,), (5, 2), (2, 40), (33, 3, 4)), (None, -1, 0, 1)):
        batches = [
            (
                layout(make_elements(kind, dtype, (n, *shape), device)),
                make_labels((n, *shape), 2, ignore, device),
            )
            for n in (2, 9)
        ]
        for samplewise, threshold in itertools.product((GLOBAL, SAMPLEWISE), (0.5, 0.3)):
            options = Options("binary", None, None, 1, samplewise, ignore, threshold)
            follow(options, batches, device)
            if samplewise and len(shape) == 1:
                continue
            for average in ("micro", "macro", "weighted", "none"):
                options = Options("multilabel", shape[0], average, 1, samplewise, ignore, threshold)
                follow(options, batches, device)


@pytest.mark.fuzz
@examples(60)
@given(data=st.data())
def test_any_options(data: st.DataObject) -> None:
    task = data.draw(st.sampled_from(["binary", "multiclass", "multilabel"]))
    classes = data.draw(st.integers(2, 40))
    trailing = data.draw(st.lists(st.integers(1, 6), max_size=3))
    samplewise = data.draw(st.booleans()) and bool(trailing)
    top_k = data.draw(st.integers(1, classes)) if task == "multiclass" else 1
    assume(torchmetrics_counts(top_k, 2 + len(trailing), states=True))
    options = Options(
        task,
        None if task == "binary" else classes,
        data.draw(st.sampled_from(["micro", "macro", "weighted", "none"])),
        top_k,
        samplewise,
        data.draw(st.sampled_from([None, 0, 1, -100])),
        data.draw(st.sampled_from([0.5, 0.1, 0.9])),
    )
    torch.manual_seed(data.draw(st.integers(0, 2**31)))
    batches = []
    for n in data.draw(st.lists(st.integers(2, 9), min_size=1, max_size=4)):
        if task == "multiclass":
            preds = distinct_scores((n, classes, *trailing), torch.float32, "cpu")
            target = make_labels((n, *trailing), classes, options.ignore_index, "cpu")
        else:
            shape = (n, *([classes] if task == "multilabel" else []), *trailing)
            kind = data.draw(st.sampled_from(["probabilities", "logits"]))
            preds = make_elements(kind, torch.float32, shape, "cpu")
            target = make_labels(shape, 2, options.ignore_index, "cpu")
        layouts = LAYOUTS if preds.ndim > 1 else LAYOUTS[:1]
        batches.append((data.draw(st.sampled_from(layouts))(preds), target))
    follow(options, batches, "cpu")


def count_by_definition(
    preds: Tensor, target: Tensor, classes: int, top_k: int, ignore: int | None
) -> list[list[int]]:
    """A target among the top k is the prediction, elsewhere that is the top class."""
    counts = [[0] * classes for _ in range(4)]
    rows = preds.cpu().double().movedim(1, -1).reshape(-1, classes).tolist()
    for row, label in zip(rows, target.flatten().tolist(), strict=True):
        if label == ignore:
            continue
        order = ranking(row)
        predicted = label if label in order[:top_k] else order[0]
        for c in range(classes):
            kind = (0 if predicted == c else 3) if label == c else (1 if predicted == c else 2)
            counts[kind][c] += 1
    return counts


@pytest.mark.parametrize("layout", [Tensor.contiguous, classes_last], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", SCORES, ids=str)
@pytest.mark.parametrize("shape", [(40, 19), (9, 150), (3, 700), (2, 19, 67)], ids=str)
def test_ties_and_nan_by_definition(
    shape: tuple[int, ...], dtype: torch.dtype, layout: Callable[[Tensor], Tensor], device: str
) -> None:
    classes = shape[1]
    preds = layout(make_scores(shape, dtype, device))
    target = make_labels(shape[:1] + shape[2:], classes, 3, device)
    hit = torch.rand(target.shape, device=device) < 0.5
    target = torch.where(hit, preds.argmax(1), target)
    for top_k in (1, 2, 5):
        ours = Counting(Options("multiclass", classes, "macro", top_k, ignore_index=3), device)
        ours.update(preds, target)
        want = count_by_definition(preds, target, classes, top_k, 3)
        assert [state.tolist() for state in ours.states] == want


@pytest.mark.parametrize("rows", [1, 24])
@pytest.mark.parametrize("columns", [False, True])
def test_many_classes(columns: bool, rows: int, device: str) -> None:
    """More than one block can finish, and rows of several chunks."""
    for classes in (9_000, 40_000):
        preds = torch.rand(rows, classes, device=device)
        preds = preds.T.contiguous().T if columns else preds
        target = preds.topk(3).indices[torch.arange(rows), torch.arange(rows) % 3]
        for average, top_k in itertools.product(("micro", "macro", "none"), (1, 2)):
            ours = Counting(Options("multiclass", classes, average, top_k), device)
            predicted = preds.argmax(1)
            predicted = torch.where(
                torch.arange(rows, device=device) % 3 < top_k, target, predicted
            )
            for _ in range(2):
                value = ours.forward(preds, target)
            assert torch.equal(value, ours.function(preds, target))
            hit = predicted == target
            tp = torch.bincount(target[hit], minlength=classes)
            fn = torch.bincount(target[~hit], minlength=classes)
            fp = torch.bincount(predicted[~hit], minlength=classes)
            want = torch.stack([tp, fp, rows - tp - fp - fn, fn]) * 2
            if average == "micro" and top_k == 1:
                want = want.sum(1, keepdim=True)
            assert torch.equal(torch.stack(ours.states), want)


def test_many_samples(device: str) -> None:
    """More than a launch may keep totals for."""
    for kind in ("probabilities", "logits", "labels"):
        dtype = torch.int64 if kind == "labels" else torch.float32
        preds = make_elements(kind, dtype, (50_000, 3, 2), device)
        target = make_labels((50_000, 3, 2), 2, -1, device)
        for options in (
            Options("binary", samplewise=True, ignore_index=-1),
            Options("multilabel", 3, "macro", samplewise=True, ignore_index=-1),
        ):
            follow(options, [(preds, target)], device)


# ---- What TorchMetrics cannot do.


@pytest.mark.parametrize("samplewise", [GLOBAL, SAMPLEWISE])
def test_empty_batches_count_nothing(samplewise: bool, device: str) -> None:
    for task, shape in (("binary", (0, 4)), ("multiclass", (0, 3, 4)), ("multilabel", (0, 3, 4))):
        classes = None if task == "binary" else 3
        preds = torch.rand(shape, device=device)
        target = torch.zeros(
            (0, 4) if task == "multiclass" else shape, dtype=torch.int64, device=device
        )
        for average in ("micro", "macro", "weighted", "none"):
            ours = Counting(Options(task, classes, average, samplewise=samplewise), device)
            ours.update(preds, target)
            if samplewise:
                assert ours.counts()[0].shape[0] == 0
                continue
            value = ours.forward(preds, target)
            assert not value.any()
            assert not any(state.any() for state in ours.states)
            assert torch.equal(ours.compute(), value)
    rows = torch.rand(3, 5, 0, device=device)
    ours = Counting(Options("multiclass", 5, "macro", samplewise=True), device)
    ours.update(rows, torch.zeros(3, 0, dtype=torch.int64, device=device))
    assert all(torch.equal(c, torch.zeros_like(c)) and c.shape == (3, 5) for c in ours.counts())


def test_one_sample_keeps_its_dimension(device: str) -> None:
    """TorchMetrics drops it, and then cannot join batches or average over labels."""
    preds, target = torch.rand(1, 3, 5, device=device), torch.ones(1, 3, 5, device=device).long()
    for task, shape in (("binary", (1,)), ("multilabel", (1, 3))):
        ours = Counting(Options(task, 3, "micro", samplewise=True), device)
        ours.update(preds, target)
        assert all(counts.shape == shape for counts in ours.counts())
        assert ours.compute().shape == (1,)


def test_unknown_number_of_classes(device: str) -> None:
    """Counted as one, as in TorchMetrics."""
    batches = [
        (torch.rand(9, 4, device=device), make_labels((9,), 4, None, device)),
        (make_labels((6, 3), 9, None, device), make_labels((6, 3), 9, None, device)),
    ]
    for batch in batches:
        follow(Options("multiclass", None, "micro"), [batch, batch], device)


def test_labels_out_of_range_without_validation(device: str) -> None:
    """All classes together take them for wrong; no class can, so that others leave them out."""
    preds, target = torch.eye(4, 40, device=device), torch.tensor([0, 99, -3, 3], device=device)
    wrong, left_out = [2, 2, 154, 2], [2, 0, 78, 0]
    for average, top_k, want in (
        ("micro", 1, wrong),
        ("micro", 2, left_out),
        ("macro", 1, left_out),
        ("weighted", 3, left_out),
    ):
        ours = Counting(Options("multiclass", 40, average, top_k, validate=False), device)
        value = ours.forward(preds, target)
        assert [int(state.sum()) for state in ours.states] == want
        assert value.item() == want[0] / (want[0] + want[3])
        assert torch.equal(ours.compute(), value)
        assert ours.bad.item() == 0


def test_fractions_as_labels(device: str) -> None:
    """Cut off where there are counts of classes, compared as they are where there are not."""
    preds = torch.tensor([[0.7, 1.0, 2.2], [1.5, 0.0, 2.0]], device=device)
    target = torch.tensor([[0, 1, 2], [1, 0.5, 2]], device=device)
    for average, samplewise in itertools.product(("micro", "macro"), (GLOBAL, SAMPLEWISE)):
        batch = (preds, target.long() if average == "micro" and not samplewise else target)
        follow(Options("multiclass", 4, average, 1, samplewise), [batch], device)
