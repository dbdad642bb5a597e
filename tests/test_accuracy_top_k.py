"""Several k in one pass: each value has the bits of its k alone."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import numpy as np
import pytest
import sklearn.metrics
import torch
from torch import Tensor

import syncfree
from accuracy_cases import (
    AVERAGES,
    LAYOUTS,
    SCORES,
    SHAPES,
    classes_last,
    make_labels,
    make_scores,
    mode,
)
from accuracy_reference import check, multiclass
from syncfree._ops import accuracy as ops
from syncfree.classification import Accuracy, MulticlassAccuracy
from syncfree.functional.classification import accuracy, multiclass_accuracy

LISTS = [[1], [2], [1, 5], [5, 1, 3, 3], (2, 1), [3, 2]]


def one_by_one(top_k: list[int], *arguments: object, **options: object) -> Tensor:
    preds, target, classes, average = arguments
    return torch.stack(
        [multiclass_accuracy(preds, target, classes, average, k, **options) for k in top_k]
    )


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", SCORES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_each_has_the_bits_of_its_k(
    shape: tuple[int, ...], dtype: torch.dtype, layout: Callable[[Tensor], Tensor], device: str
) -> None:
    """Ties, zeros of both signs, infinities and NaN among the scores."""
    classes = shape[1]
    preds = layout(make_scores(shape, dtype, device))
    lists = [[min(k, classes) for k in top_k] for top_k in LISTS]
    for ignore in (None, 1):
        target = make_labels(shape[:1] + shape[2:], classes, ignore, device)
        target = torch.where(torch.rand(target.shape, device=device) < 0.5, preds.argmax(1), target)
        for average, samplewise in itertools.product(AVERAGES, (False, True)):
            if samplewise and len(shape) < 3:
                continue
            options = {"multidim_average": mode(samplewise), "ignore_index": ignore}
            for top_k in lists:
                got = multiclass_accuracy(preds, target, classes, average, top_k, **options)
                want = one_by_one(top_k, preds, target, classes, average, **options)
                assert got.device == want.device
                assert torch.equal(got, want)


@pytest.mark.parametrize("average", AVERAGES)
def test_by_definition(average: str | None, device: str) -> None:
    preds = make_scores((4, 23, 9), torch.float32, device)
    target = make_labels((4, 9), 23, None, device)
    for samplewise in (False, True):
        got = multiclass_accuracy(preds, target, 23, average, [4, 1], mode(samplewise))
        want = [multiclass(preds, target, 23, average, k, samplewise) for k in (4, 1)]
        check(got, np.stack(want), device)


def test_matches_scikit_learn_and_topk(device: str) -> None:
    scores, target = torch.randn(600, 40, dtype=torch.float64), torch.randint(0, 40, (600,))
    top_k = [1, 2, 5, 10, 40]
    got = multiclass_accuracy(scores.to(device), target.to(device), 40, "micro", top_k).cpu()
    truth = target.numpy(), scores.numpy()
    for value, k in zip(got.tolist(), top_k, strict=True):
        if k < 40:
            want = sklearn.metrics.top_k_accuracy_score(*truth, k=k)
            assert value == pytest.approx(want, rel=1e-7)
        hits = (scores.topk(k).indices == target[:, None]).any(1)
        assert value == pytest.approx(hits.double().mean().item(), rel=1e-7)
    shared = {"num_classes": 40, "top_k": top_k}
    dispatched = accuracy(scores.to(device), target.to(device), "multiclass", **shared)
    assert torch.equal(dispatched.cpu(), got)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("columns", [False, True])
def test_many_classes(columns: bool, dtype: torch.dtype, device: str) -> None:
    """Rows longer than a block's first look, counters too many for shared memory or one block."""
    for rows, classes in ((40, 9_000), (5, 40_000), (700, 1_500)):
        preds = torch.randn(rows, classes).clamp(max=3).to(dtype)
        target = torch.randint(0, classes, (rows,))
        preds[torch.arange(rows), target] = torch.rand(rows).mul(4).to(dtype)
        preds = preds.T.contiguous().T if columns else preds
        for average, top_k in itertools.product(AVERAGES, ([1, 50], [300, 7])):
            arguments = preds.to(device), target.to(device), classes, average
            assert torch.equal(
                multiclass_accuracy(*arguments, top_k), one_by_one(top_k, *arguments)
            )


def test_many_k_and_many_samples(device: str) -> None:
    preds = torch.randn(70, 40, 12, device=device)
    target = make_labels((70, 12), 40, None, device)
    top_k = torch.randperm(40)[:32].add(1).tolist()
    for average, samplewise in itertools.product(("micro", "macro", "none"), (False, True)):
        options = {"multidim_average": mode(samplewise)}
        scores = classes_last(preds) if samplewise else preds
        got = multiclass_accuracy(scores, target, 40, average, top_k, **options)
        assert torch.equal(got, one_by_one(top_k, scores, target, 40, average, **options))


def test_nothing_to_count_is_zero(device: str) -> None:
    for shape in ((0, 5), (0, 5, 4), (3, 5, 0)):
        preds = torch.rand(shape, device=device)
        target = torch.zeros(shape[:1] + shape[2:], dtype=torch.int64, device=device)
        for average, samplewise in itertools.product(AVERAGES, (False, True)):
            if samplewise and len(shape) < 3:
                continue
            sizes = (shape[:1] if samplewise else ()) + ((5,) if average in ("none", None) else ())
            got = multiclass_accuracy(preds, target, 5, average, [2, 1, 3], mode(samplewise))
            check(got, np.zeros((3, *sizes)), device)


def look(*arguments: object) -> None:
    """On CUDA the value tells that labels are bad, and a look at the errors raises."""
    assert multiclass_accuracy(*arguments).isnan().all()
    syncfree.check_errors()


def test_bad_labels(device: str) -> None:
    """They raise, or without validation are wrong (micro) or left out, as with one k."""
    scores = torch.randn(50, 6, device=device)
    target = make_labels((50,), 6, None, device)
    target[::7] = 9
    for average in AVERAGES:
        arguments = scores, target, 6, average
        options = {"validate_args": False}
        got = multiclass_accuracy(*arguments, [3, 1], **options)
        assert torch.equal(got, one_by_one([3, 1], *arguments, **options))
        with pytest.raises(RuntimeError, match=r"values in `target`.*9 at flat index 0.*of 8"):
            look(*arguments, [3, 1])
    got = multiclass_accuracy(scores, target, None, "micro", [1, 1])
    assert torch.equal(got, one_by_one([1, 1], scores, target, None, "micro"))


def test_an_integer_alone_is_no_list(device: str) -> None:
    scores, target = torch.rand(9, 3, device=device), torch.arange(9, device=device) % 3
    assert multiclass_accuracy(scores, target, 3, "micro", 2).shape == ()
    assert multiclass_accuracy(scores, target, 3, "micro", [2]).shape == (1,)
    assert multiclass_accuracy(scores, target, 3, None, (2, 1)).shape == (2, 3)


@pytest.mark.parametrize(
    ("top_k", "message"),
    [
        ([], "`top_k` to hold 1 to 32 integers, but got 0"),
        ([1] * 33, "`top_k` to hold 1 to 32 integers, but got 33"),
        ([1, 4], "`top_k` to be smaller or equal to `num_classes` but got 4 and 3"),
        ([2, 0], "`top_k` to be an integer larger than or equal to 1, but got 0"),
        ([1, 2.0], "`top_k` to be an integer larger than or equal to 1, but got 2.0"),
        (["1"], "`top_k` to be an integer larger than or equal to 1, but got '1'"),
        ([None], "`top_k` to be an integer larger than or equal to 1, but got None"),
        ([1, [2]], "`top_k` to be an integer larger than or equal to 1"),
        ([np.int64(2)], r"Convert it with `int\(top_k\)`"),
        ({1, 2}, "`top_k` to be an integer larger than or equal to 1"),
        (torch.tensor([1, 2]), "`top_k` to be an integer larger than or equal to 1"),
    ],
    ids=str,
)
def test_refuses(top_k: object, message: str, device: str) -> None:
    scores, target = torch.rand(9, 3, device=device), torch.arange(9, device=device) % 3
    for _ in range(2):
        multiclass_accuracy(scores, target, 3, "micro", [1, 2])
        with pytest.raises(ValueError, match=message):
            multiclass_accuracy(scores, target, 3, "micro", top_k)


def test_labels_have_no_rank(device: str) -> None:
    labels = torch.arange(9, device=device) % 3
    for top_k in ([1], [1, 2]):
        with pytest.raises(ValueError, match=r"where `top_k` is a list, but got labels of shape"):
            multiclass_accuracy(labels, labels, 3, "micro", top_k)
    with pytest.raises(ValueError, match="`num_classes` but got 2 and None"):
        multiclass_accuracy(labels, labels, None, "micro", [1, 2])


def test_states_count_for_one_k() -> None:
    with pytest.raises(ValueError, match="make a metric for each, or pass the list to the func"):
        MulticlassAccuracy(3, top_k=[1, 2])
    metric = MulticlassAccuracy(3)
    with pytest.raises(ValueError, match="make a metric for each"):
        metric.top_k = [1, 2]
    with pytest.raises(ValueError, match="must be type `int`"):
        Accuracy("multiclass", num_classes=3, top_k=[1, 2])


@pytest.mark.parametrize(
    ("average", "samplewise"), [("micro", False), ("macro", True), ("none", True)]
)
def test_op_keeps_its_promises(average: str, samplewise: bool, device: str) -> None:
    preds = torch.randn(12, 4, 3, device=device)
    target = make_labels((12, 3), 4, None, device)
    arguments = 4, [3, 1], *ops.pack_options(average, samplewise, None, True)
    op = ops.multiclass_accuracy_top_k
    for scores in (preds, preds.clone().requires_grad_()):
        torch.library.opcheck(op, (scores, target, *arguments))
        assert not op(scores, target, *arguments).requires_grad
    on_meta = op(preds.to("meta"), target.to("meta"), *arguments)
    assert on_meta.shape == op(preds, target, *arguments).shape


def test_op_fails_alike_on_meta(device: str) -> None:
    scores = torch.zeros(4, 3, device=device)
    target = torch.zeros(4, dtype=torch.int64, device=device)
    options = ops.pack_options("micro", False, None, True)
    for first, top_k in ((scores, []), (scores, [0]), (scores, [1] * 33), (target, [1])):
        with pytest.raises(ValueError, match=r"`top_k`") as eager:
            ops.multiclass_accuracy_top_k(first, target, 3, top_k, *options)
        on_meta = first.to("meta"), target.to("meta"), 3, top_k, *options
        with pytest.raises(ValueError, match=f"^{re.escape(str(eager.value))}$"):
            ops.multiclass_accuracy_top_k(*on_meta)


def test_compiles_whole_for_any_batch(device: str) -> None:
    def step(preds: Tensor, target: Tensor) -> Tensor:
        return multiclass_accuracy(preds * 2, target, 5, "macro", [1, 3])

    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend="aot_eager")
    for samples in (4, 9, 30):
        preds = torch.randn(samples, 5, device=device)
        target = make_labels((samples,), 5, None, device)
        assert torch.equal(compiled(preds, target), step(preds, target))


@pytest.mark.needs_cuda
@pytest.mark.parametrize("average", ["micro", "macro", "none"])
@pytest.mark.parametrize("classes", [19, 1000, 20_000])
def test_replays_in_a_graph(classes: int, average: str) -> None:
    """Counters are left at zero: each replay answers for its own scores."""
    scores, target = (
        torch.zeros(300, classes, device="cuda"),
        torch.zeros(300, device="cuda").long(),
    )

    def step() -> Tensor:
        return multiclass_accuracy(scores, target, classes, average, [1, 5])

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = step()
    for _ in range(3):
        scores.normal_()
        target.random_(classes)
        graph.replay()
        want = one_by_one([1, 5], scores, target, classes, average)
        assert torch.equal(value, want)
