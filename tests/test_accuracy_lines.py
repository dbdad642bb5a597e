"""One fraction of a long line of scores, which blocks count without a look at each other."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from accuracy_cases import SCORES
from syncfree.functional.classification import binary_accuracy, multilabel_accuracy
from test_accuracy_errors import raises_bad_label

# Where such a line begins to be long, one block, a block and an element, many blocks.
SIZES = [2047, 2048, 2049, 100_003]
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
    of_pairs = fraction(preds[: size // 2 * 2] > 0.5, target[: size // 2 * 2])
    assert multilabel_accuracy(*pairs, 2, average="micro").item() == of_pairs
    alone = [x[None] for x in batch]
    assert binary_accuracy(*alone, multidim_average="samplewise").item() == want


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


def test_bad_labels_among_logits(device: str) -> None:
    preds, target = line(100_003)
    logits = preds * 4 - 2
    target[::1000] = 3
    kept = target < 2
    batch = logits.to(device), target.to(device)
    raises_bad_label(lambda: binary_accuracy(*batch), "3 at flat index 0, the first of 101", device)
    value = binary_accuracy(*batch, validate_args=False)
    assert value.item() == fraction(logits[kept] > 0.0, target[kept])


def test_calls_one_behind_the_other(device: str) -> None:
    """Each finds the memory that they share as the one before has left it, without a wait."""
    preds, target = line(100_003)
    marred = torch.where(target == 1, 9, target)
    given, labels, wrong = (x.to(device) for x in (preds, target, marred))
    logits = given * 4 - 2
    calls = [(given, labels), (logits, labels), (given, wrong), (logits, wrong)] * 3
    counted = [binary_accuracy(*batch, validate_args=False) for batch in calls]
    zeros = target == 0
    want = [
        fraction(preds > 0.5, target),
        fraction(preds > 0.5, target),
        fraction(preds[zeros] > 0.5, target[zeros]),
        fraction(preds[zeros] > 0.5, target[zeros]),
    ] * 3
    assert [value.item() for value in counted] == want


@pytest.mark.parametrize("size", [(1 << 25) - 1, 1 << 25])
def test_as_many_as_a_word_can_count(size: int, device: str) -> None:
    """All right by either bound; one more takes another way."""
    preds = torch.ones(1, dtype=torch.float16, device=device).expand(size)
    target = torch.ones(1, dtype=torch.bool, device=device).expand(size)
    assert binary_accuracy(preds, target).item() == 1.0
    assert binary_accuracy(preds, ~target).item() == 0.0


@pytest.mark.needs_cuda
def test_replayed_with_other_scores_and_labels() -> None:
    preds, target = line(100_003)
    given, labels = preds.cuda(), target.cuda()
    binary_accuracy(given, labels)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = binary_accuracy(given, labels, validate_args=False)
    marred = torch.where(target == 1, 9, target)
    for scores, truth in itertools.product((preds, preds * 4 - 2), (target, marred, target)):
        given.copy_(scores)
        labels.copy_(truth)
        graph.replay()
        kept = truth < 2
        assert value.item() == fraction(preds[kept] > 0.5, truth[kept])
