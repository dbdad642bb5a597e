"""The ops that add to the states of the SSIM classes; compilation, graphs, waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter

from similarity_classes import (
    MS_SSIM,
    SSIM,
    SimilarityClass,
    each_class,
)
from syncfree._ops.ms_ssim import multiscale_ssim_update
from syncfree._ops.ssim import ssim_update, ssim_update_with_contrast, ssim_update_with_map
from syncfree.image import StructuralSimilarityIndexMeasure

OPTIONS = (True, (1.5,), (11,), 1.0, None, 0.01, 0.03)
SCALES = (*OPTIONS, (0.4, 0.6), 1)
MEAN, EACH = 1, 0


def op_arguments(op: Any, device: str) -> tuple[Any, ...]:
    kind = MS_SSIM if op is multiscale_ssim_update else SSIM
    states = torch.zeros((), device=device), torch.zeros((), device=device)
    return *kind.batches(device)[0], *states, *(SCALES if kind is MS_SSIM else OPTIONS)


each_op = pytest.mark.parametrize(
    "op",
    [ssim_update, ssim_update_with_map, ssim_update_with_contrast, multiscale_ssim_update],
    ids=lambda op: op._schema.name,
)


@each_op
def test_ops_keep_their_promises(op: Any, device: str) -> None:
    """Schema, fake tensors and tracing; images that require a gradient give a value without."""
    preds, *rest = op_arguments(op, device)
    for images in (preds, preds.clone().requires_grad_(), preds.half()):
        torch.library.opcheck(op, (images, *rest, MEAN))
    result = op(preds.clone().requires_grad_(), *rest, MEAN)
    assert not (result if isinstance(result, Tensor) else result[0]).requires_grad


def test_values_of_images_may_be_counted_alone(device: str) -> None:
    preds, target, _, total, *options = op_arguments(multiscale_ssim_update, device)
    torch.library.opcheck(multiscale_ssim_update, (preds, target, None, total, *options, EACH))
    total.zero_()
    value = multiscale_ssim_update(preds, target, None, total, *options, EACH)
    assert value.shape == (2,)
    assert total == 2


BAD_STATES: list[tuple[str, Callable[[Tensor], Tensor], str]] = [
    ("similarity", lambda s: s.int(), "to be a floating tensor"),
    ("similarity", lambda s: s.expand(2), "to have one element"),
    ("total", lambda s: s.int(), "to be a floating or an int64 tensor"),
    ("total", lambda s: s.expand(3), "to have one element"),
]


@each_op
@pytest.mark.parametrize(("name", "spoil", "message"), BAD_STATES)
def test_bad_states_are_refused(
    op: Any, name: str, spoil: Callable[[Tensor], Tensor], message: str, device: str
) -> None:
    for where in (device, "meta"):
        arguments = [x.to(where) if isinstance(x, Tensor) else x for x in op_arguments(op, device)]
        place = 2 if name == "similarity" else 3
        arguments[place] = spoil(arguments[place])
        with pytest.raises(ValueError, match=f"state `{name}` {message}.*Reset the metric"):
            op(*arguments, MEAN)


@each_op
def test_values_of_images_are_not_added(op: Any, device: str) -> None:
    arguments = op_arguments(op, device)
    on_meta = [x.to("meta") if isinstance(x, Tensor) else x for x in arguments]
    for given in (arguments, on_meta):
        with pytest.raises(ValueError, match="a mean or a sum"):
            op(*given, EACH)


@each_op
def test_states_may_be_counts_and_views(op: Any, device: str) -> None:
    (
        preds,
        target,
        *_,
    ) = op_arguments(op, device)
    options = op_arguments(op, device)[4:]
    states = torch.zeros(3, 2, device=device)
    total = torch.tensor([40], device=device)
    op(preds, target, states[1, 1], total, *options, MEAN)
    assert total == 42
    assert states[1, 1] > 0
    assert states.count_nonzero() == 1


# ---- torch.compile and CUDA.


@each_class
@pytest.mark.parametrize("gradient", [False, True])
def test_compiles_whole(kind: SimilarityClass, gradient: bool, device: str) -> None:
    compiled_metric, plain = kind.pair(device)[0], kind.pair(device)[0]

    def step(preds: Tensor, target: Tensor) -> Tensor:
        compiled_metric.update(preds * 0.9, target)
        return compiled_metric(preds, target)

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for preds, target in kind.batches(device)[:2]:
        leaf = preds.clone().requires_grad_(gradient)
        value = compiled(leaf, target)
        plain.update(preds * 0.9, target)
        assert torch.equal(value, plain(preds, target))
        assert value.requires_grad == gradient
    assert torch.equal(compiled_metric.similarity, plain.similarity)
    assert torch.equal(compiled_metric.total, plain.total)


def test_lists_grow_outside_of_graphs(device: str) -> None:
    """As docs/classes.md has it: a step has two graphs then, and not new ones at each batch."""
    metric = StructuralSimilarityIndexMeasure(data_range=1.0, reduction="none").to(device)
    update = torch.compiler.disable(metric.update)

    def step(preds: Tensor, target: Tensor) -> Tensor:
        update(preds * 0.9, target)
        return preds + target

    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(step, backend=counter)
    preds, target = torch.rand(2, 3, 3, 16, 16).to(device)
    for _ in range(torch._dynamo.config.recompile_limit + 4):
        compiled(preds, target)
    assert counter.frame_count == 2
    assert len(metric.similarity) == torch._dynamo.config.recompile_limit + 4


@pytest.mark.needs_cuda
@each_class
@pytest.mark.parametrize("data_range", [1.0, None])
def test_captured_steps_go_on_counting(kind: SimilarityClass, data_range: float | None) -> None:
    metric, plain = (kind.pair("cuda", data_range=data_range)[0] for _ in range(2))
    preds, target = (x.clone() for x in kind.batches("cuda")[0])
    metric(preds, target)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = metric(preds, target)
        metric.update(preds, target)
        total = metric.compute()
    for _ in range(2):
        metric.reset()
        plain.reset()
        for seed in range(3):
            fresh = kind.batches("cuda")[0]
            preds.copy_(fresh[0].roll(seed, -1))
            target.copy_(fresh[1])
            graph.replay()
            assert torch.equal(value, plain(preds, target))
            plain.update(preds, target)
            assert torch.equal(total, plain.compute())
        assert torch.equal(metric.similarity, plain.similarity)


@pytest.mark.needs_cuda
@each_class
@pytest.mark.parametrize("data_range", [1.0, (0.1, 0.9), None])
@pytest.mark.parametrize("reduction", ["elementwise_mean", "sum", "none"])
def test_never_waits(kind: SimilarityClass, reduction: str, data_range: Any) -> None:
    metric = kind.pair("cuda", reduction=reduction, data_range=data_range)[0]
    preds, target = kind.batches("cuda")[0]

    def epoch() -> None:
        metric.update(preds, target)
        metric(preds, target)
        metric(preds.detach().requires_grad_(), target)
        metric.compute()
        metric.reset()

    epoch()
    epoch()
    torch.cuda.synchronize()
    torch.cuda._sleep(200_000_000)
    gate = torch.cuda.current_stream().record_event()
    torch.cuda.set_sync_debug_mode("error")
    try:
        epoch()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert not gate.query(), "the calls came back only after the GPU had finished earlier work"


@pytest.mark.needs_cuda
@each_class
@pytest.mark.parametrize(("home", "away"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_states_on_another_device_are_refused(kind: SimilarityClass, home: str, away: str) -> None:
    metric = kind.pair(home)[0]
    for step in (metric, metric.update):
        with pytest.raises(RuntimeError, match=r"Move the metric there with `.to\(device\)`"):
            step(*kind.batches(away)[0])
    assert metric.similarity == metric.total == 0
