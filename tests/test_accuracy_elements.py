"""Binary and multilabel accuracy against their definitions."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from accuracy_cases import (
    AVERAGES,
    LAYOUTS,
    SCORES,
    make_elements,
    make_labels,
    mode,
)
from accuracy_reference import check, elementwise
from syncfree.functional.classification import (
    binary_accuracy,
    multilabel_accuracy,
)


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
