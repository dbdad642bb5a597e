"""Calls behind one another: a kernel may take its places before the one ahead of it has ended."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from calls import CALLS, PublicCall
from syncfree.functional import multiclass_accuracy

pytestmark = pytest.mark.needs_cuda


def hold_the_gpu() -> None:
    """For about 50 ms, so that what is called meanwhile is queued before any of it runs."""
    torch.cuda._sleep(100_000_000)


def labels(right: int, count: int = 1000, device: str = "cuda") -> tuple[Tensor, Tensor]:
    """Predictions of which so many are right."""
    target = torch.zeros(count, dtype=torch.int64)
    preds = (torch.arange(count) >= right).long()
    return preds.to(device), target.to(device)


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_each_call_reads_what_was_written_just_ahead(call: PublicCall) -> None:
    inputs = [call.inputs("cuda", seed) for seed in range(5)]
    want = [call.results(*(tensor.cpu() for tensor in pair)) for pair in inputs]
    preds, target = (torch.empty_like(tensor) for tensor in inputs[0])
    got = []
    hold_the_gpu()
    for turn in range(40):
        for place, values in zip((preds, target), inputs[turn % 5], strict=True):
            place.copy_(values)
        got.append(call.results(preds, target))
    for turn, results in enumerate(got):
        for result, expected in zip(results, want[turn % 5], strict=True):
            torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_kernels_of_all_sizes_behind_one_another() -> None:
    """They share the stream's scratch memory, which each must find as the one ahead left it."""
    pairs = []
    for n in (1, 7, 300):
        for classes in (3, 40, 1000, 5000, 70_000):
            scores = torch.randn(n, classes, device="cuda")
            right = torch.arange(n, device="cuda") % 2
            pairs.append((scores, scores.argmax(1) * right, classes))
    for average in ("micro", "macro"):
        want = [multiclass_accuracy(s.cpu(), t.cpu(), c, average=average) for s, t, c in pairs]
        hold_the_gpu()
        got = [
            [multiclass_accuracy(s, t, c, average=average) for s, t, c in pairs] for _ in range(4)
        ]
        for turn in got:
            for value, expected in zip(turn, want, strict=True):
                torch.testing.assert_close(value.cpu(), expected)


def test_streams_and_threads() -> None:
    pairs = [labels(right) for right in range(100, 900, 100)]
    torch.cuda.synchronize()

    def repeat(i: int) -> Tensor:
        with torch.cuda.stream(torch.cuda.Stream()):
            values = [multiclass_accuracy(*pairs[i], 2, average="micro") for _ in range(300)]
            return torch.stack(values).cpu()

    with ThreadPoolExecutor(len(pairs)) as pool:
        for i, values in enumerate(pool.map(repeat, range(len(pairs)))):
            assert torch.equal(values, torch.full((300,), (i + 1) / 10))


def accuracy_after(preds: Tensor, target: Tensor, right: int) -> Tensor:
    """Of inputs that two streams write, just before a third reads them."""
    new_preds, new_target = labels(right)
    here, other = torch.cuda.current_stream(), torch.cuda.Stream()
    other.wait_stream(here)
    with torch.cuda.stream(other):
        target.copy_(new_target)
    preds.copy_(new_preds)
    here.wait_stream(other)
    return multiclass_accuracy(preds, target, 2, average="micro")


def test_behind_another_stream() -> None:
    preds, target = labels(0)
    values = []
    for right in range(100, 1000, 100):
        hold_the_gpu()
        values.append(accuracy_after(preds, target, right))
    assert torch.equal(torch.stack(values).cpu(), torch.arange(1, 10) / 10)


@pytest.mark.parametrize("ahead", ["kernel", "memset", "copy", "streams"])
def test_what_may_stand_ahead_in_a_graph(ahead: str) -> None:
    preds, target = labels(0)
    source, _ = labels(0)
    side = torch.cuda.Stream()
    multiclass_accuracy(preds, target, 2, average="micro")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        if ahead == "kernel":
            torch.mul(source, 1, out=preds)
        elif ahead == "copy":
            preds.copy_(source)
        elif ahead == "memset":
            preds.copy_(source)
            target.zero_()
        else:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                target.fill_(0)
            torch.mul(source, 1, out=preds)
            torch.cuda.current_stream().wait_stream(side)
        value = multiclass_accuracy(preds, target, 2, average="micro")
    for right in (300, 900, 0, 1000):
        source.copy_(labels(right)[0])
        target.fill_(1)
        if ahead not in ("memset", "streams"):
            target.zero_()
        graph.replay()
        assert value.item() == pytest.approx(right / 1000)
