"""Multiclass accuracy of scores and labels against its definition."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchmetrics.functional.classification as tm
from torch import Tensor

from accuracy_cases import (
    AVERAGES,
    LABELS,
    LAYOUTS,
    SCORES,
    SHAPES,
    classes_last,
    every_second,
    make_labels,
    make_scores,
    mode,
    reversed_dims,
)
from accuracy_reference import check, elementwise, multiclass
from instruction_sets import every_lower_set, passes_with
from syncfree.functional.classification import (
    binary_accuracy,
    multiclass_accuracy,
    multilabel_accuracy,
)


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


@pytest.mark.parametrize("options", [{}, {"num_classes": 8, "validate_args": False}], ids=str)
def test_numbers_that_are_no_class_are_wrong(options: dict[str, Any], device: str) -> None:
    """Where nothing checks labels, and even beside an equal number."""
    labels = torch.tensor([0.5, 7.0, math.inf, -math.inf, math.nan], device=device)
    assert multiclass_accuracy(labels, labels, average="micro", **options).item() == float(
        torch.tensor(1 / 5)
    )


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("classes", [2, 8, 19, 32, 48, 49, 96])
def test_short_rows(classes: int, dtype: torch.dtype, device: str) -> None:
    """Rows one behind the other with ties and NaN, several blocks of them and a rest."""
    torch.manual_seed(classes)
    scores = torch.randint(-9, 9, (403, classes)).to(dtype)
    scores[::7, classes // 2] = math.nan
    target = torch.randint(classes, (403,))
    target[::2] = scores[::2].float().argmax(1)
    target[5::11] = -1
    wrong_at_the_end = target.clone()
    wrong_at_the_end[-1] = (target[-1] + 1) % classes
    for preds, labels in (
        (scores, target),
        (scores, wrong_at_the_end),
        (scores[1:], target[1:]),
        (scores[1:], wrong_at_the_end[1:]),
    ):
        on_device = preds.to(device), labels.to(device)
        for average, top_k in (("micro", 1), ("none", 1), ("micro", 2)):
            got = multiclass_accuracy(*on_device, classes, average, top_k, ignore_index=-1)
            check(got, multiclass(preds, labels, classes, average, top_k, False, -1), device)


@every_lower_set
def test_lower_instruction_sets(isa: str) -> None:
    chosen = (
        "cpu and (many_classes or token_logits or half_score or label_dtypes or around"
        " or (by_definition and (contiguous or classes_last or logits)))"
    )
    passes_with(isa, chosen, __file__, Path(__file__).with_name("test_accuracy_elements.py"))
