"""The ops that count: states of any layout, schemas, tracing, compilation, graphs, streams."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from accuracy_cases import make_labels
from accuracy_metric import Counting, Options
from syncfree._ops import accuracy as ops

OPTIONS = [
    Options("binary"),
    Options("binary", ignore_index=0, validate=False),
    Options("multiclass", 4, "micro"),
    Options("multiclass", 4, "macro"),
    Options("multiclass", 4, "micro", top_k=2, ignore_index=1),
    Options("multiclass", None, "micro"),
    Options("multilabel", 4, "none"),
    Options("multilabel", 4, "micro"),
    Options("multilabel", 4, "weighted", ignore_index=-1),
]
SAMPLEWISE = [
    Options("binary", samplewise=True),
    Options("multiclass", 4, "micro", samplewise=True),
    Options("multiclass", 4, "none", top_k=3, samplewise=True),
    Options("multilabel", 4, "macro", samplewise=True),
]
ARGUMENTS = ("preds", "target")


def batch(options: Options, device: str, n: int = 12) -> tuple[Tensor, Tensor]:
    preds = torch.randn(n, 4, 3, device=device)
    if options.task == "multiclass":
        return preds, make_labels((n, 3), 4, options.ignore_index, device)
    return preds, make_labels((n, 4, 3), 2, options.ignore_index, device)


def updated(options: Options, device: str, *batches: tuple[Tensor, Tensor]) -> list[Tensor]:
    ours = Counting(options, device)
    for preds, target in batches:
        ours.update(preds, target)
    return ours.states


# ---- States.


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_states_of_any_layout(options: Options, device: str) -> None:
    first, second = batch(options, device), batch(options, device, 5)
    want = updated(options, device, first, second)
    size = options.size
    columns = torch.zeros(size, 4, dtype=torch.int64, device=device)
    reverse = torch.zeros(9, 3 * size + 1, dtype=torch.int64, device=device)
    for states in (list(columns.unbind(1)), list(reverse[1:5, 1 : 1 + 3 * size : 3])):
        ours = Counting(options, device, states)
        ours.update(*first)
        ours.forward(*second)
        assert all(map(torch.equal, states, want))
    assert columns.sum() == reverse.sum() == sum(state.sum() for state in want)


def test_states_without_a_dimension(device: str) -> None:
    options = Options("binary")
    states = [torch.tensor(5, device=device) for _ in range(4)]
    one = batch(options, device)
    Counting(options, device, states).update(*one)
    for got, want in zip(states, updated(options, device, one), strict=True):
        assert got.item() == want.item() + 5


def test_states_are_looked_up_at_each_call(device: str) -> None:
    """TorchMetrics rebinds them: reset, load_state_dict, compute groups."""
    options = Options("multiclass", 4, "macro")
    one = batch(options, device)
    ours = Counting(options, device)
    ours.update(*one)
    before = [state.clone() for state in ours.states]
    kept = ours.states
    ours.states = [torch.zeros_like(state) for state in kept]
    ours.update(*one)
    assert all(map(torch.equal, ours.states, before))
    assert all(map(torch.equal, kept, before))


def test_states_made_in_inference_mode(device: str) -> None:
    """Lightning resets there."""
    options = Options("multiclass", 4, "micro")
    one = batch(options, device)
    with torch.inference_mode():
        ours = Counting(options, device)
    ours.update(*one)
    assert all(map(torch.equal, ours.states, updated(options, device, one)))


BAD_STATES: list[Callable[[Tensor], Tensor]] = [
    lambda s: s.double(),
    lambda s: s.int(),
    lambda s: s[:-1],
    lambda s: torch.cat([s, s]),
    lambda s: s[None],
    lambda s: s[:1].expand(4),
]


@pytest.mark.parametrize("spoil", BAD_STATES)
@pytest.mark.parametrize("place", range(4))
def test_bad_states_are_refused(place: int, spoil: Callable[[Tensor], Tensor], device: str) -> None:
    options = Options("multiclass", 4, "macro")
    preds, target = batch(options, device)
    states = [torch.zeros(4, dtype=torch.int64, device=device) for _ in range(4)]
    states[place] = spoil(states[place])
    name = ("tp", "fp", "tn", "fn")[place]
    message = rf"state `{name}` to be an int64 tensor of shape \[4\], but got .*Reset the metric"
    ours = Counting(options, device, states)
    with pytest.raises(ValueError, match=message):
        ours.update(preds, target)
    with pytest.raises(ValueError, match=message):
        ours.forward(preds, target)
    assert not any(state.any() for state in states)
    if states[place].numel() == 4 and states[place].stride() == (0,):
        return  # fake tensors may be views of anything
    on_meta = Counting(options, "meta", [state.to("meta") for state in states])
    with pytest.raises(ValueError, match=message):
        on_meta.update(preds.to("meta"), target.to("meta"))


def test_samples_and_batches_are_not_mixed_up(device: str) -> None:
    preds, target = batch(Options("binary"), device)
    for where in (device, "meta"):
        bad, state = (torch.zeros(1, dtype=torch.int64, device=where) for _ in range(2))
        pair = preds.to(where), target.to(where)
        with pytest.raises(ValueError, match="to be `samplewise` for the counts of samples"):
            ops.COUNTS["binary"](*pair, bad, *Options("binary").arguments())
        arguments = Options("binary", samplewise=True).arguments()
        with pytest.raises(ValueError, match="to be `global` where counts are added"):
            ops.UPDATE["binary"](*pair, *[state] * 4, bad, *arguments)


# ---- The ops in torch.


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_ops_keep_their_promises(options: Options, device: str) -> None:
    """Schema, fake tensors and tracing; scores that require a gradient give a value without."""
    preds, target = batch(options, device)
    ours = Counting(options, device)
    for scores in (preds, preds.clone().requires_grad_()):
        arguments = scores, target, *ours.states, ours.bad, *options.arguments()
        torch.library.opcheck(ours.op(ops.UPDATE), arguments)
        torch.library.opcheck(ours.op(ops.FORWARD), arguments)
        assert not ours.op(ops.FORWARD)(*arguments).requires_grad
    last = options.arguments()[-2]
    torch.library.opcheck(ops.accuracy_from_counts, (*ours.states, ours.bad, last))
    torch.library.opcheck(ops.accuracy_from_counts, (*ours.states, None, last))


@pytest.mark.parametrize("options", SAMPLEWISE, ids=str)
def test_counts_keep_their_promises(options: Options, device: str) -> None:
    preds, target = batch(options, device)
    ours = Counting(options, device)
    torch.library.opcheck(ours.op(ops.COUNTS), (preds, target, ours.bad, *options.arguments()))
    ours.update(preds, target)
    last = options.arguments()[-2]
    torch.library.opcheck(ops.accuracy_from_counts, (*ours.counts(), ours.bad, last))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_compiles_whole_for_any_batch(options: Options, device: str) -> None:
    ours, plain = Counting(options, device), Counting(options, device)

    def step(preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        ours.update(preds * 2, target)
        value = ours.forward(preds, target)
        return value, ours.compute()

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend="aot_eager")
    with torch._dynamo.config.patch(error_on_recompile=True):
        for n in (7, 9, 30):
            preds, target = batch(options, device, n)
            value, total = compiled(preds, target)
            plain.update(preds * 2, target)
            assert torch.equal(value, plain.forward(preds, target))
            assert torch.equal(total, plain.compute())
    assert all(map(torch.equal, ours.states, plain.states))


FROM_COUNTS: list[tuple[Any, Options]] = [
    ([torch.zeros(3)] * 4, Options("multiclass", 3, "macro")),
    ([torch.zeros(3, dtype=torch.int64)] * 3 + [torch.zeros(2).long()], OPTIONS[3]),
    ([torch.zeros(3, 2, dtype=torch.int64)] * 4, OPTIONS[3]),
    ([torch.zeros(3, dtype=torch.int64)] * 4, OPTIONS[0]),
    ([torch.zeros(0, dtype=torch.int64)] * 4, OPTIONS[0]),
    ([torch.zeros(3, dtype=torch.int64)] * 4, SAMPLEWISE[1]),
    ([torch.zeros(3, 2, 2, dtype=torch.int64)] * 4, SAMPLEWISE[3]),
]


@pytest.mark.parametrize(("counts", "options"), FROM_COUNTS, ids=str)
def test_bad_counts_are_refused(counts: list[Tensor], options: Options, device: str) -> None:
    last = options.arguments()[-2]
    with pytest.raises(ValueError, match="Expected ") as error:
        ops.accuracy_from_counts(*(c.to(device) for c in counts), None, last)
    with pytest.raises(ValueError, match=re.escape(str(error.value).split(", but got")[0])):
        ops.accuracy_from_counts(*(c.to("meta") for c in counts), None, last)


def test_counts_of_no_class(device: str) -> None:
    counts = [torch.zeros(0, dtype=torch.int64, device=device)] * 4
    for options in OPTIONS[2:]:
        value = ops.accuracy_from_counts(*counts, None, options.arguments()[-2])
        assert not value.any()


def test_one_bad_element_spoils_every_value(device: str) -> None:
    counts = [torch.arange(6, device=device).view(2, 3) for _ in range(4)]
    for options in (SAMPLEWISE[1], SAMPLEWISE[2], SAMPLEWISE[3]):
        last = options.arguments()[-2]
        for bad in (0, 1, 2**40):
            value = ops.accuracy_from_counts(*counts, torch.tensor([bad], device=device), last)
            assert value.isnan().all() == (bad > 0)


# ---- CUDA.


@pytest.mark.needs_cuda
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_captured_updates_accumulate(options: Options) -> None:
    preds, target = batch(options, "cuda")
    ours, plain = Counting(options, "cuda"), Counting(options, "cuda")
    ours.forward(preds, target)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ours.update(preds, target)
        value = ours.forward(preds, target)
        total = ours.compute()
    for state in ours.states:
        state.zero_()  # what reset does
    for seed in range(3):
        torch.manual_seed(seed)
        fresh = batch(options, "cuda")
        preds.copy_(fresh[0])
        target.copy_(fresh[1])
        graph.replay()
        plain.update(*fresh)
        assert torch.equal(value, plain.forward(*fresh))
        assert torch.equal(total, plain.compute())
    assert all(map(torch.equal, ours.states, plain.states))


@pytest.mark.needs_cuda
@pytest.mark.parametrize("options", OPTIONS + SAMPLEWISE, ids=str)
def test_never_waits(options: Options) -> None:
    preds, target = batch(options, "cuda")
    ours = Counting(options, "cuda")
    for _ in range(2):
        ours.update(preds, target)
        ours.compute()
    torch.cuda.synchronize()
    torch.cuda._sleep(200_000_000)
    gate = torch.cuda.current_stream().record_event()
    torch.cuda.set_sync_debug_mode("error")
    try:
        ours.update(preds, target)
        ours.compute()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert not gate.query(), "the call came back only after the GPU had finished earlier work"


@pytest.mark.needs_cuda
def test_streams_may_share_states() -> None:
    options = Options("multiclass", 4, "macro")
    one = batch(options, "cuda", 4096)
    ours = Counting(options, "cuda")
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(4)]
    for _ in range(50):
        for stream in streams:
            with torch.cuda.stream(stream):
                ours.update(*one)
    torch.cuda.synchronize()
    want = updated(options, "cuda", one)
    assert all(torch.equal(got, 200 * one) for got, one in zip(ours.states, want, strict=True))
