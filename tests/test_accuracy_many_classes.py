"""Counts of many classes: how many rows and classes decide who adds them up, and in what words."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from accuracy_metric import Counting, Options
from syncfree.functional.classification import multiclass_accuracy
from test_accuracy_errors import raises_bad_label

# Rows and classes: shared by lanes, read at once or in two looks, or a block for each, few enough
# of them to run at once or more, counted by the last block or by a second launch.
SIZES = [
    (300, 1000, torch.float32),
    (1300, 700, torch.float32),
    (70, 4096, torch.bfloat16),
    (9, 2100, torch.float32),
    (1100, 2100, torch.float32),
    (9, 9000, torch.bfloat16),
    (1100, 4200, torch.float16),
    (3, 40000, torch.float32),
]


def in_steps(rows: int, classes: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Scores with one greatest value a row, and targets of which half are right."""
    predicted = torch.randint(classes, (rows,))
    scores = torch.zeros(rows, classes, dtype=dtype).scatter_(1, predicted[:, None], 1.0)
    return scores, torch.where(torch.rand(rows) < 0.5, predicted, torch.randint(classes, (rows,)))


def count(scores: Tensor, target: Tensor, ignore_index: int | None) -> tuple[Tensor, ...]:
    """True and false positives and negatives of each class."""
    predicted = scores.float().argmax(1)
    if ignore_index is not None:
        predicted, target = (x[target != ignore_index] for x in (predicted, target))
    classes = scores.shape[1]
    tp = target[predicted == target].bincount(minlength=classes)
    fp = predicted.bincount(minlength=classes) - tp
    fn = target.bincount(minlength=classes) - tp
    return tp, fp, len(target) - tp - fp - fn, fn


def check_once(
    rows: int, classes: int, dtype: torch.dtype, ignore_index: int | None, device: str
) -> None:
    """All that is made of the counts of one batch."""
    scores, target = in_steps(rows, classes, dtype)
    if ignore_index is not None:
        target[::3] = ignore_index
    tp, fp, tn, fn = count(scores, target, ignore_index)
    of_class = torch.where(tp + fn > 0, tp.double() / (tp + fn).clamp(min=1), 0.0)
    macro = (of_class.sum() / (tp + fp + fn > 0).sum()).float()
    preds, labels = scores.to(device), target.to(device)

    def value(average: str, top_k: int | list[int] = 1) -> Tensor:
        with_k = partial(multiclass_accuracy, preds, labels, classes, average, top_k)
        return with_k(ignore_index=ignore_index).cpu()

    torch.testing.assert_close(value("macro"), macro, rtol=1e-6, atol=0)
    assert torch.equal(value("none"), of_class.float())
    assert torch.equal(value("micro"), (tp.sum().double() / (tp + fn).sum()).float())
    for average in ("macro", "micro"):
        each = torch.stack([value(average, k) for k in (1, 5)])
        assert torch.equal(value(average, [1, 5]), each)
    metric = Counting(Options("multiclass", classes, "macro", ignore_index=ignore_index), device)
    metric.update(preds, labels)
    assert all(map(torch.equal, (x.cpu() for x in metric.states), (tp, fp, tn, fn)))


@pytest.mark.parametrize("ignore_index", [None, 7])
@pytest.mark.parametrize(("rows", "classes", "dtype"), SIZES)
def test_values_and_states(
    rows: int, classes: int, dtype: torch.dtype, ignore_index: int | None, device: str
) -> None:
    """Twice, for counts that a launch leaves behind spoil the next one."""
    check_once(rows, classes, dtype, ignore_index, device)
    check_once(rows, classes, dtype, ignore_index, device)


@pytest.mark.parametrize("elements", [2**21 - 1, 2**21, 2**21 + 1])
def test_all_of_one_class(elements: int, device: str) -> None:
    """As many as the counters of a class can hold that share a word, and more."""
    target = torch.ones(1, dtype=torch.int64, device=device).expand(elements)
    for predicted in (0, 1, 2):
        options = Options("multiclass", 3, "macro")
        scores = torch.eye(3, device=device)[predicted].expand(elements, 3)
        for preds in (scores, scores.argmax(1)):
            metric = Counting(options, device)
            metric.update(preds, target)
            want = torch.zeros(4, 3, dtype=torch.int64)
            want[2] = elements
            want[:, 1] = torch.tensor([elements, 0, 0, 0])
            if predicted != 1:
                want[:, 1] = torch.tensor([0, 0, 0, elements])
                want[:, predicted] = torch.tensor([0, elements, 0, 0])
            assert torch.equal(torch.stack(metric.states).cpu(), want)
            share = 1.0 if predicted == 1 else 0.0
            assert multiclass_accuracy(preds, target, 3).item() == share


def test_a_bad_label_among_many_classes(device: str) -> None:
    """Rows may be read before their targets; the next call starts from nothing."""
    for rows, classes in ((40, 1000), (40, 3000), (5, 9000)):
        scores, target = (x.to(device) for x in in_steps(rows, classes, torch.float32))
        good = multiclass_accuracy(scores, target, classes)
        wrong = target.clone()
        wrong[3], wrong[4] = classes, -1
        message = f"in `target`: {classes} at flat index 3, the first of 2"
        raises_bad_label(partial(multiclass_accuracy, scores, wrong, classes), message, device)
        kept = multiclass_accuracy(scores, wrong, classes, validate_args=False)
        fewer = [0, 1, 2, *range(5, rows)]
        assert torch.equal(kept, multiclass_accuracy(scores[fewer], target[fewer], classes))
        assert torch.equal(multiclass_accuracy(scores, target, classes), good)


# Finished by a second launch: a block for each row, more of them than run at once; many classes.
TWO_LAUNCHES = [(3000, 2100), (50, 5000)]


def macro_of(scores: Tensor, target: Tensor) -> Tensor:
    tp, fp, _, fn = count(scores.cpu(), target.cpu(), None)
    of_class = torch.where(tp + fn > 0, tp.double() / (tp + fn).clamp(min=1), 0.0)
    return (of_class.sum() / (tp + fp + fn > 0).sum()).float()


@pytest.mark.parametrize(("rows", "classes"), TWO_LAUNCHES)
def test_one_call_behind_the_other(rows: int, classes: int, device: str) -> None:
    """A launch that starts early waits for the one whose counts it takes."""
    batches = [
        tuple(x.to(device) for x in in_steps(rows, classes, torch.float32)) for _ in range(4)
    ]
    values = [multiclass_accuracy(*batches[i % 4], classes) for i in range(40)]
    wanted = [macro_of(*batch) for batch in batches]
    for i, value in enumerate(values):
        torch.testing.assert_close(value.cpu(), wanted[i % 4], rtol=1e-6, atol=0)


@pytest.mark.needs_cuda
@pytest.mark.parametrize(("rows", "classes"), TWO_LAUNCHES)
def test_replays_in_a_graph(rows: int, classes: int) -> None:
    scores, target = (x.cuda() for x in in_steps(rows, classes, torch.float32))
    multiclass_accuracy(scores, target, classes)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = multiclass_accuracy(scores, target, classes)
    for _ in range(5):
        for x, fresh in zip((scores, target), in_steps(rows, classes, torch.float32), strict=True):
            x.copy_(fresh)
        graph.replay()
        torch.testing.assert_close(value.cpu(), macro_of(scores, target), rtol=1e-6, atol=0)
