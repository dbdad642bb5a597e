"""One fraction of a long line of scores, which blocks count without a look at each other."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from accuracy_cases import SCORES
from syncfree.functional.classification import binary_accuracy, multilabel_accuracy
from test_accuracy_errors import raises_bad_label

SIZES = [2048, 2049, 100_003]  # one block, a block and an element, many blocks
TARGETS = [torch.int64, torch.bool, torch.uint8, torch.float32]


def line(
    size: int, dtype: torch.dtype = torch.float32, target_dtype: torch.dtype = torch.int64
) -> tuple[Tensor, Tensor]:
    """On the CPU, with a score on either side of 0.5 for each label, and some on it."""
    generator = torch.Generator().manual_seed(size)
    preds = torch.randint(0, 17, (size,), generator=generator).to(dtype) / 16
    return preds, torch.randint(0, 2, (size,), generator=generator).to(target_dtype)


def fraction(predicted: Tensor, target: Tensor) -> float:
    right = int((predicted == target.bool()).sum())
    return float(torch.tensor(right / target.numel(), dtype=torch.float32))


@pytest.mark.parametrize("target_dtype", TARGETS, ids=str)
@pytest.mark.parametrize("dtype", SCORES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_fraction(size: int, dtype: torch.dtype, target_dtype: torch.dtype, device: str) -> None:
    preds, target = line(size, dtype, target_dtype)
    batch = preds.to(device), target.to(device)
    want = fraction(preds > 0.5, target)
    assert [binary_accuracy(*batch).item() for _ in range(3)] == [want] * 3
    spread = batch[0].repeat_interleave(3)[::3], batch[1].repeat_interleave(2)[::2]
    assert binary_accuracy(*spread).item() == want
    pairs = [x[: size // 2 * 2].reshape(-1, 2) for x in batch]
    want = fraction(preds[: size // 2 * 2] > 0.5, target[: size // 2 * 2])
    assert multilabel_accuracy(*pairs, 2, average="micro").item() == want


@pytest.mark.parametrize("place", [0, 1, 0.5, -1])
@pytest.mark.parametrize("size", SIZES)
def test_one_score_makes_all_of_them_logits(size: int, place: float, device: str) -> None:
    """Of whichever block, the last one to come or not; the call after it knows nothing of it."""
    preds, target = line(size)
    at = int(place * size) if isinstance(place, float) else place
    logits = (preds - 0.25).clamp(0.0, 1.0) / 2
    logits[at] = -3.0
    as_logits = binary_accuracy(logits.to(device), target.to(device))
    as_probabilities = binary_accuracy(preds.to(device), target.to(device))
    assert as_logits.item() == fraction(logits > 0.0, target) != fraction(logits > 0.5, target)
    assert as_probabilities.item() == fraction(preds > 0.5, target)


@pytest.mark.parametrize("size", SIZES)
def test_bad_labels(size: int, device: str) -> None:
    """They are told of, or left out; the call after one with them has none."""
    preds, target = line(size)
    marred = target.clone()
    marred[[size // 3, size - 1]] = torch.tensor([7, -1])
    given, labels, wrong = (x.to(device) for x in (preds, target, marred))
    message = rf"in `target`: 7 at flat index {size // 3}, the first of 2, "
    raises_bad_label(lambda: binary_accuracy(given, wrong), message, device)
    assert binary_accuracy(given, labels).item() == fraction(preds > 0.5, target)
    kept = marred == target
    want = fraction(preds[kept] > 0.5, target[kept])
    assert binary_accuracy(given, wrong, validate_args=False).item() == want
    marred.fill_(2)
    assert binary_accuracy(given, marred.to(device), validate_args=False).item() == 0.0
    assert binary_accuracy(given, labels).item() == fraction(preds > 0.5, target)
