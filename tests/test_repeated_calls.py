"""Calls behind one another: a kernel may take its places before the one ahead of it has ended, and
accuracies are cut from blocks of memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from calls import CALLS, PublicCall
from syncfree.functional import multiclass_accuracy

pytestmark = pytest.mark.needs_cuda

BLOCK = 128  # scalars, csrc/ops/cuda_scalar.cpp


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


def test_values_do_not_share_places() -> None:
    pairs = [labels(right) for right in range(10)]
    values = [multiclass_accuracy(*pairs[i % 10], 2, average="micro") for i in range(3 * BLOCK)]
    del values[1::2]
    values[0].add_(5)
    more = [multiclass_accuracy(*pairs[9], 2, average="micro") for _ in range(2 * BLOCK)]
    got = torch.stack(values).cpu()
    want = torch.tensor([i % 10 / 1000 for i in range(0, 3 * BLOCK, 2)])
    want[0] += 5
    assert torch.equal(got, want)
    assert torch.equal(torch.stack(more).cpu(), torch.full((2 * BLOCK,), 9 / 1000))


def test_values_that_are_kept_take_little_memory() -> None:
    pair = labels(500)
    multiclass_accuracy(*pair, 2, average="micro")
    before = torch.cuda.memory_allocated()
    values = [multiclass_accuracy(*pair, 2, average="micro") for _ in range(8 * BLOCK)]
    assert torch.cuda.memory_allocated() - before <= 9 * 512
    assert values[0].untyped_storage().nbytes() <= 512
    del values
    assert torch.cuda.memory_allocated() - before <= 512


def test_inference_mode_leaves_no_trace() -> None:
    pair = labels(250)
    with torch.inference_mode():
        inside = multiclass_accuracy(*pair, 2, average="micro")
    outside = multiclass_accuracy(*pair, 2, average="micro")
    assert inside.is_inference()
    assert not outside.is_inference()
    weight = torch.ones((), device="cuda", requires_grad=True)
    (weight * outside).backward()  # saved for it, which inference tensors cannot be
    assert weight.grad == 0.25


def test_a_captured_value_is_the_graphs_own() -> None:
    preds, target = labels(100)
    multiclass_accuracy(preds, target, 2, average="micro")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = multiclass_accuracy(preds, target, 2, average="micro")
    eager = [multiclass_accuracy(*labels(300), 2, average="micro") for _ in range(2 * BLOCK)]
    preds.copy_(labels(700)[0])
    for _ in range(3):
        graph.replay()
    assert captured == 0.7
    assert torch.equal(torch.stack(eager).cpu(), torch.full((2 * BLOCK,), 0.3))
