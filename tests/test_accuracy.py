"""Accuracy against its definitions, scikit-learn and TorchMetrics."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import sklearn.metrics
import torch
import torchmetrics.functional.classification as tm
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from accuracy_reference import check, elementwise, multiclass
from syncfree._ops import accuracy as ops
from syncfree.functional.classification import (
    accuracy,
    binary_accuracy,
    multiclass_accuracy,
    multilabel_accuracy,
)

SCORES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
LABELS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.float32]
AVERAGES = ["micro", "macro", "weighted", "none", None]

# (N, C, ...): rows shorter and longer than a vector, planes with and without a rest, one of each.
SHAPES = [
    (1, 2),
    (7, 3),
    (40, 19),
    (9, 150),
    (3, 700),
    (2, 5, 3),
    (2, 19, 67),
    (1, 4, 1),
    (3, 7, 4, 9),
    (2, 3, 5, 1, 6),
]


def classes_last(x: Tensor) -> Tensor:
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


def every_second(x: Tensor) -> Tensor:
    return x.new_zeros(*x.shape[:-1], 2 * x.shape[-1])[..., ::2].copy_(x)


def window(x: Tensor) -> Tensor:
    return x.new_zeros(x.shape[0] + 2, x.shape[1] + 3, *x.shape[2:])[1:-1, 2:-1].copy_(x)


def reversed_dims(x: Tensor) -> Tensor:
    return x.permute(*reversed(range(x.ndim))).contiguous().permute(*reversed(range(x.ndim)))


LAYOUTS = [Tensor.contiguous, classes_last, every_second, window, reversed_dims]


def make_scores(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> Tensor:
    """Few distinct values: ties, both zeros, infinities and NaN of both signs among them."""
    values = [-math.inf, -1.5, -0.0, 0.0, 0.5, 1.5, math.inf, math.nan]
    weights = torch.tensor([1, 20, 20, 20, 20, 20, 1, 1.0])
    picked = torch.tensor(values)[torch.multinomial(weights, math.prod(shape), replacement=True)]
    sign = torch.where(picked.isnan() & (torch.rand(picked.shape) < 0.5), -1.0, 1.0)
    return (
        torch.where(picked.isnan(), picked.copysign(sign), picked)
        .reshape(shape)
        .to(dtype)
        .to(device)
    )


def make_labels(shape: tuple[int, ...], classes: int, ignore: int | None, device: str) -> Tensor:
    labels = torch.randint(0, classes, shape)
    if ignore is not None:
        labels = labels.masked_fill(torch.rand(shape) < 0.2, ignore)
    return labels.to(device)


def mode(samplewise: bool) -> str:
    return "samplewise" if samplewise else "global"


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", SCORES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_multiclass_scores_by_definition(
    shape: tuple[int, ...], dtype: torch.dtype, layout: Callable[[Tensor], Tensor], device: str
) -> None:
    classes = shape[1]
    preds = layout(make_scores(shape, dtype, device))
    for ignore in (None, -100, 1):
        target = make_labels(shape[:1] + shape[2:], classes, ignore, device)
        # Every second is right, or ties and NaN in long rows would go unnoticed.
        target = torch.where(torch.rand(target.shape, device=device) < 0.5, preds.argmax(1), target)
        target = reversed_dims(target)
        for average, top_k, samplewise in itertools.product(AVERAGES, (1, 2, 5), (False, True)):
            if top_k > classes or (samplewise and len(shape) < 3):
                continue
            got = multiclass_accuracy(
                preds, target, classes, average, top_k, mode(samplewise), ignore_index=ignore
            )
            want = multiclass(preds, target, classes, average, top_k, samplewise, ignore)
            check(got, want, device)


@pytest.mark.parametrize("dtype", SCORES, ids=str)
@pytest.mark.parametrize("columns", [False, True])
def test_many_classes(columns: bool, dtype: torch.dtype, device: str) -> None:
    """Rows of several chunks, the target anywhere, and more planes than 16-bit lanes can number."""
    rows, classes = 24, 40_000
    place = torch.arange(rows) * (classes // rows) + 5
    preds = torch.randn(rows, classes).clamp(max=3).to(dtype)
    preds[torch.arange(rows), place] = 4.0
    target = torch.where(torch.arange(rows) % 3 == 0, (place + 1) % classes, place)
    preds[torch.arange(rows), target] = torch.where(torch.arange(rows) % 3 == 0, 3.5, 4.0).to(dtype)
    stored = preds.T.contiguous().T if columns else preds
    for average, top_k in itertools.product(AVERAGES, (1, 2)):
        got = multiclass_accuracy(stored.to(device), target.to(device), classes, average, top_k)
        hit = np.ones(rows) if top_k == 2 else (place == target).numpy()
        score = np.bincount(target.numpy(), hit, classes)
        support = np.bincount(target.numpy(), minlength=classes)
        seen = support + (np.bincount(place.numpy(), minlength=classes) if top_k == 1 else 0) > 0
        want = {"micro": hit.mean(), "weighted": hit.mean(), "macro": score.sum() / seen.sum()}
        check(got, np.asarray(want.get(average or "none", score)), device)


@pytest.mark.parametrize("dtype", SCORES, ids=str)
def test_token_logits(dtype: torch.dtype, device: str) -> None:
    """The shifted view of a language model: no copy, class stride 1, prompts ignored."""
    logits = make_scores((3, 18, 101), dtype, device)
    labels = make_labels((3, 18), 101, -100, device)
    preds, target = logits[:, :-1].transpose(1, 2), labels[:, 1:]
    for average, top_k in itertools.product(AVERAGES, (1, 5)):
        got = multiclass_accuracy(preds, target, 101, average, top_k, ignore_index=-100)
        check(got, multiclass(preds, target, 101, average, top_k, ignore_index=-100), device)


def test_expanded_and_high_rank_views(device: str) -> None:
    preds = make_scores((5, 4, 1, 6), torch.float32, device).expand(5, 4, 3, 6)
    target = make_labels((1, 3, 6), 4, None, device).expand(5, 3, 6)
    check(multiclass_accuracy(preds, target, 4), multiclass(preds, target, 4, "macro"), device)
    deep = make_scores((2, 3, 2, 1, 2, 1, 2, 3, 2, 2), torch.float32, device)
    labels = make_labels(deep.shape[:1] + deep.shape[2:], 3, None, device)
    for preds in (deep, classes_last(deep), reversed_dims(deep)):
        for samplewise in (False, True):
            got = multiclass_accuracy(preds, labels, 3, multidim_average=mode(samplewise))
            check(got, multiclass(preds, labels, 3, "macro", 1, samplewise), device)
    binary = make_labels(deep.shape, 2, None, device)
    got = multilabel_accuracy(reversed_dims(binary), binary.flip(-1), 3, average=None)
    check(got, elementwise(binary, binary.flip(-1), None), device)


@pytest.mark.parametrize("first", [*LABELS, torch.bool], ids=str)
@pytest.mark.parametrize("second", [*LABELS, torch.bool], ids=str)
def test_label_dtypes(first: torch.dtype, second: torch.dtype, device: str) -> None:
    classes = 2 if torch.bool in (first, second) else 7
    preds = every_second(make_labels((6, 31), classes, None, device).to(first))
    target = make_labels((6, 31), classes, None, device).to(second)
    for average, samplewise in itertools.product(AVERAGES, (False, True)):
        got = multiclass_accuracy(preds, target, classes, average, 1, mode(samplewise))
        check(got, multiclass(preds, target, classes, average, 1, samplewise), device)
    if classes == 2:
        check(
            binary_accuracy(preds.long(), target),
            elementwise(preds.long()[:, None], target[:, None], "micro"),
            device,
        )


def test_fractions_as_predicted_labels(device: str) -> None:
    """As in TorchMetrics: micro compares the numbers, the others cut the fraction off."""
    preds = torch.tensor([0.7, 1.0, 2.2, math.pi], device=device)
    target = torch.tensor([0, 1, 2, 2], device=device)
    for average in AVERAGES:
        arguments = (preds[:3], target[:3], 3, average)
        check(
            multiclass_accuracy(*arguments),
            tm.multiclass_accuracy(*arguments).cpu().double().numpy(),
            device,
        )
    assert multiclass_accuracy(preds, target, average="micro").item() == 0.25


def test_classes_unknown(device: str) -> None:
    """Without `num_classes` no label is out of range."""
    preds, target = (
        torch.tensor([5, -1, 9, 3], device=device),
        torch.tensor([5, -1, 8, -7], device=device),
    )
    assert multiclass_accuracy(preds, target, average="micro").item() == 0.5
    assert multiclass_accuracy(
        preds, target, average="micro", ignore_index=-1
    ).item() == pytest.approx(1 / 3)
    scores = torch.eye(4, device=device)
    target = torch.tensor([0, 1, 7, -2], device=device)
    assert multiclass_accuracy(scores, target, average="micro").item() == 0.5


# ---- Binary and multilabel.


def make_elements(kind: str, dtype: torch.dtype, shape: tuple[int, ...], device: str) -> Tensor:
    if kind == "labels":
        return torch.randint(0, 2, shape).to(dtype).to(device)
    scores = torch.randn(shape).mul(2) if kind == "logits" else torch.rand(shape)
    return scores.masked_fill(torch.rand(shape) < 0.05, 0.5).to(dtype).to(device)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        *itertools.product(["probabilities", "logits"], SCORES),
        *itertools.product(["labels"], [torch.int64, torch.bool, torch.uint8]),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "shape", [(1, 2), (50, 3), (30, 80), (4, 3, 50), (2, 5, 3, 4), (3, 2, 2, 5, 1)], ids=str
)
def test_multilabel_and_binary_by_definition(
    shape: tuple[int, ...], kind: str, dtype: torch.dtype, device: str
) -> None:
    elements = make_elements(kind, dtype, shape, device)
    for layout, ignore in itertools.product(LAYOUTS, (None, -1, 0)):
        preds, target = layout(elements), make_labels(shape, 2, ignore, device)
        for average, samplewise in itertools.product(AVERAGES, (False, True)):
            if samplewise and len(shape) < 3:
                continue
            got = multilabel_accuracy(
                preds, target, shape[1], 0.3, average, mode(samplewise), ignore
            )
            check(got, elementwise(preds, target, average, 0.3, samplewise, ignore), device)
        for samplewise in (False, True):
            got = binary_accuracy(preds, target, 0.3, mode(samplewise), ignore)
            one_label = preds.unsqueeze(1), target.unsqueeze(1)
            want = elementwise(*one_label, "micro", 0.3, samplewise, ignore)
            check(got, want.reshape(()) if shape[0] == 1 else want, device)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.5, 0.7311, 0.999, 1.0])
def test_every_half_score(threshold: float, dtype: torch.dtype, device: str) -> None:
    """All 65,536 scores: first the probabilities among them, then all as logits."""
    scores = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    for part in (scores[(scores >= 0) & (scores <= 1)], scores):
        want = (part.sigmoid() if part is scores else part) > threshold
        got = binary_accuracy(part.to(device), want.to(device), threshold)
        assert got.item() == 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_scores_around_the_threshold(dtype: torch.dtype, device: str) -> None:
    for threshold in (0.1, 0.25, 0.5, 0.9):
        bound = torch.tensor(threshold, dtype=dtype)
        beside = [bound.nextafter(torch.tensor(x, dtype=dtype)) for x in (0.0, 1.0)]
        preds = torch.stack([beside[0], bound, beside[1]]).to(device)
        want = torch.tensor([0, 0, 1], device=device)
        assert binary_accuracy(preds, want, threshold).item() == 1.0
        logit = math.log(threshold / (1 - threshold))
        preds = torch.tensor([logit - 1e-4, logit + 1e-4, -5.0, 5.0], dtype=dtype, device=device)
        assert (
            binary_accuracy(preds, torch.tensor([0, 1, 0, 1], device=device), threshold).item()
            == 1.0
        )


def test_one_score_makes_all_of_them_logits(device: str) -> None:
    """Also where that score is ignored, last of many, or belongs to another sample."""
    preds = torch.full((64, 3000), 0.4, device=device)
    target = torch.zeros(64, 3000, dtype=torch.int64, device=device)
    assert binary_accuracy(preds, target).item() == 1.0
    preds[-1, -1], target[-1, -1] = 1.5, -1
    assert binary_accuracy(preds, target, ignore_index=-1).item() == 0.0
    assert not binary_accuracy(preds, target, multidim_average="samplewise", ignore_index=-1).any()
    preds[-1, -1] = math.nan  # neither outside nor positive
    target[-1, -1] = 0
    assert binary_accuracy(preds, target).item() == 1.0


# ---- Other implementations.


def test_matches_scikit_learn(device: str) -> None:
    scores = torch.randn(500, 6, dtype=torch.float64)
    target = torch.randint(0, 6, (500,))
    truth, predicted = target.numpy(), scores.argmax(1).numpy()
    on_device = scores.to(device), target.to(device), 6
    got = multiclass_accuracy(*on_device, average="micro").item()
    assert got == pytest.approx(sklearn.metrics.accuracy_score(truth, predicted), rel=1e-7)
    got = multiclass_accuracy(*on_device).item()
    assert got == pytest.approx(sklearn.metrics.balanced_accuracy_score(truth, predicted), rel=1e-7)
    for k in range(1, 6):
        got = multiclass_accuracy(*on_device, average="micro", top_k=k).item()
        want = sklearn.metrics.top_k_accuracy_score(truth, scores.numpy(), k=k)
        assert got == pytest.approx(want, rel=1e-7)
    probabilities, labels = torch.rand(700, dtype=torch.float64), torch.randint(0, 2, (700,))
    got = binary_accuracy(probabilities.to(device), labels.to(device), 0.4).item()
    assert got == pytest.approx(
        sklearn.metrics.accuracy_score(labels, probabilities > 0.4), rel=1e-7
    )


def agree(ours: Tensor, theirs: Tensor) -> None:
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_max_ulp(ours.cpu().numpy(), theirs.cpu().numpy(), maxulp=2)


@pytest.mark.parametrize("samplewise", [False, True])
@pytest.mark.parametrize("validate", [False, True])
@pytest.mark.parametrize("ignore", [None, -1, 2, 255])
@pytest.mark.parametrize("average", AVERAGES)
def test_matches_torchmetrics(
    average: str | None, ignore: int | None, validate: bool, samplewise: bool, device: str
) -> None:
    """Over the product of all options. Its mean over classes is a float32 sum: two roundings."""
    for shape, top_k in itertools.product(
        [(40, 7), (1, 7), (5, 7, 11), (1, 7, 3), (2, 7, 4, 6)], (1, 3)
    ):
        preds = torch.randn(shape, device=device)
        target = make_labels(shape[:1] + shape[2:], 7, ignore, device)
        options = (7, average, top_k, mode(samplewise), ignore, validate)
        if not samplewise or len(shape) > 2:
            agree(
                multiclass_accuracy(preds, target, *options),
                tm.multiclass_accuracy(preds, target, *options),
            )
        labels = preds.argmax(1)
        if top_k == 1 and (not samplewise or labels.ndim > 1):
            agree(
                multiclass_accuracy(labels, target, *options),
                tm.multiclass_accuracy(labels, target, *options),
            )
        for scores in (preds, preds.sigmoid(), (preds > 0).long()):
            labels = make_labels(shape, 2, None if ignore == 2 else ignore, device)
            binary = (0.4, mode(samplewise), ignore, validate)
            agree(
                binary_accuracy(scores, labels, *binary),
                tm.binary_accuracy(scores, labels, *binary),
            )
            if samplewise and (len(shape) < 3 or (shape[0] == 1 and average == "micro")):
                continue
            multilabel = (7, 0.4, average, *binary[1:])
            agree(
                multilabel_accuracy(scores, labels, *multilabel),
                tm.multilabel_accuracy(scores, labels, *multilabel),
            )


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel", "MultiLabel", "BINARY"])
def test_dispatch_by_task(task: str, device: str) -> None:
    preds = torch.rand(30, 4, device=device)
    binary = task != "multiclass"
    target = make_labels((30, 4) if binary else (30,), 2 if binary else 4, None, device)
    for average in ("micro", "macro"):
        options = {"num_classes": 4, "num_labels": 4, "average": average, "threshold": 0.6}
        agree(accuracy(preds, target, task, **options), tm.accuracy(preds, target, task, **options))


# ---- Borders.


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


@settings(deadline=None, max_examples=60)
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


# ---- torch.


OPS = [
    (
        ops.binary_accuracy,
        (12, 4, 3),
        (12, 4, 3),
        2,
        (0.5, *ops.pack_options("micro", False, None, True)),
    ),
    (
        ops.binary_accuracy,
        (12, 4, 3),
        (12, 4, 3),
        2,
        (0.5, *ops.pack_options("micro", True, 0, False)),
    ),
    (
        ops.multiclass_accuracy,
        (12, 4, 3),
        (12, 3),
        4,
        (4, 1, *ops.pack_options("macro", False, None, True)),
    ),
    (
        ops.multiclass_accuracy,
        (12, 4, 3),
        (12, 3),
        4,
        (4, 2, *ops.pack_options("none", True, 1, False)),
    ),
    (
        ops.multilabel_accuracy,
        (12, 4, 3),
        (12, 4, 3),
        2,
        (4, 0.5, *ops.pack_options("none", False, None, True)),
    ),
    (
        ops.multilabel_accuracy,
        (1, 4, 3),
        (1, 4, 3),
        2,
        (4, 0.5, *ops.pack_options("macro", True, None, True)),
    ),
]


@pytest.mark.parametrize(
    ("op", "preds_shape", "target_shape", "classes", "arguments"), OPS, ids=str
)
def test_ops_keep_their_promises(
    op: Callable[..., Tensor],
    preds_shape: tuple[int, ...],
    target_shape: tuple[int, ...],
    classes: int,
    arguments: tuple[object, ...],
    device: str,
) -> None:
    """Schema, fake tensors and tracing; scores that require a gradient give a result without."""
    preds = torch.randn(preds_shape, device=device)
    target = make_labels(target_shape, classes, None, device)
    for scores in (preds, preds.clone().requires_grad_()):
        torch.library.opcheck(op, (scores, target, *arguments))
        assert not op(scores, target, *arguments).requires_grad
    on_meta = op(preds.to("meta"), target.to("meta"), *arguments)
    assert on_meta.shape == op(preds, target, *arguments).shape


def test_compiles_whole_for_any_batch(device: str) -> None:
    def step(preds: Tensor, target: Tensor) -> Tensor:
        hits = multiclass_accuracy(preds * 2, target, 5, "micro")
        return hits + accuracy(preds.amax(1), (target > 2).long(), "binary")

    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend="aot_eager")
    for samples in (4, 9, 30):
        preds = torch.randn(samples, 5, device=device)
        target = make_labels((samples,), 5, None, device)
        assert torch.equal(compiled(preds, target), step(preds, target))


@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512"])
def test_every_instruction_set(isa: str) -> None:
    """In a process of its own, since the choice is made once."""
    chosen = (
        "cpu and (many_classes or token_logits or half_score or label_dtypes or around"
        " or (by_definition and (contiguous or classes_last or logits)))"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", chosen]
    environment = {**os.environ, "SYNCFREE_ISA": isa}
    done = subprocess.run(
        [*command, __file__], env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
