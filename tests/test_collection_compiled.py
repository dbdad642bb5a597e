"""A compiled MetricCollection: whole graphs, and no more of them with more steps and epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import syncfree as sf
import syncfree.classification as sc
import syncfree.image as si

Batch = tuple[Tensor, Tensor]


def scores(seed: int) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(64, 10, generator=rng), torch.randint(0, 10, (64,), generator=rng)


def images(seed: int) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    return torch.rand(2, 3, 32, 32, generator=rng), torch.rand(2, 3, 32, 32, generator=rng)


def accuracy(**options: Any) -> Any:
    return sc.MulticlassAccuracy(num_classes=10, **options)


CASES: dict[str, tuple[Callable[[], Any], Callable[[int], Batch]]] = {
    "alone": (lambda: [accuracy()], scores),
    "ours in a group": (lambda: {"a": accuracy(), "b": accuracy(average="weighted")}, scores),
    "theirs follows": (lambda: [accuracy(), sc.MulticlassF1Score(num_classes=10)], scores),
    "images": (
        lambda: [
            si.PeakSignalNoiseRatio(data_range=1.0),
            si.StructuralSimilarityIndexMeasure(data_range=1.0),
        ],
        images,
    ),
}


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("by_name", [False, True], ids=["positional", "by_name"])
@pytest.mark.parametrize("step", ["update", "forward"])
@pytest.mark.parametrize("case", CASES)
def test_compiles_whole_and_no_more(case: str, step: str, by_name: bool, device: str) -> None:
    graphs: list[Any] = []

    def backend(graph: nn.Module, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    make, inputs = CASES[case]
    compiled, plain = (sf.MetricCollection(make()).to(device) for _ in range(2))
    called = compiled if step == "forward" else compiled.update
    run: Any = torch.compile(called, fullgraph=True, backend=backend)
    counts: list[int] = []
    for epoch in range(4):
        for i in range(20):
            preds, target = (tensor.to(device) for tensor in inputs(20 * epoch + i))
            value = run(preds=preds, target=target) if by_name else run(preds, target)
            torch.testing.assert_close(value, getattr(plain, step)(preds, target))
        torch.testing.assert_close(compiled.compute(), plain.compute())
        compiled.reset()
        plain.reset()
        counts.append(len(graphs))
    # The first batch forms the groups, and after a reset it finds states that are shared already.
    assert counts[0] == 2
    assert counts[1] <= 3
    assert counts[1:] == [counts[1]] * 3
