"""What must hold for every public function: no waits, right stream and device, capture, compile."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from calls import CALLS, PublicCall

every_call = pytest.mark.parametrize("call", CALLS, ids=str)


def same(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> None:
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert x.dtype == y.dtype
        assert torch.equal(x.cpu(), y.cpu())


@contextmanager
def waiting_is_an_error() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def busy(stream: torch.cuda.Stream) -> torch.cuda.Event:
    """Keeps a stream busy for some 50 ms; the event behind it is not ready until then."""
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        event = torch.cuda.Event()
        event.record()
    return event


@every_call
def test_identical_bits_on_repeated_runs(call: PublicCall, device: str) -> None:
    preds, target = call.inputs(device, 0)
    first = call.results(preds, target)
    for _ in range(5):
        same(call.results(preds, target), first)


@every_call
def test_cuda_agrees_with_cpu(call: PublicCall, device: str) -> None:
    preds, target = call.inputs("cpu", 1)
    here = call.results(preds.to(device), target.to(device))
    for got, want in zip(here, call.results(preds, target), strict=True):
        assert got.device.type == device
        torch.testing.assert_close(got.cpu(), want, rtol=2e-6, atol=2e-6)


@every_call
def test_compiles_whole(call: PublicCall, device: str) -> None:
    preds, target = call.inputs(device, 2)
    torch._dynamo.reset()  # calls that share a line of the table would count as recompilations
    compiled = torch.compile(call.run, fullgraph=True, backend="aot_eager")
    out = compiled(preds, target)
    same((out,) if isinstance(out, Tensor) else tuple(out), call.results(preds, target))


@every_call
def test_autocast_changes_nothing(call: PublicCall, device: str) -> None:
    preds, target = call.inputs(device, 1)
    want = call.results(preds, target)
    with torch.autocast(device, dtype=torch.bfloat16):
        same(call.results(preds, target), want)


@every_call
def test_does_not_touch_its_inputs(call: PublicCall, device: str) -> None:
    preds, target = call.inputs(device, 3)
    before = preds.clone(), target.clone()
    call.run(preds, target)
    assert torch.equal(preds, before[0])
    assert torch.equal(target, before[1])


@pytest.mark.needs_cuda
@every_call
def test_never_waits(call: PublicCall) -> None:
    """Neither torch's sync debug mode nor a spinning kernel in front sees the host wait."""
    preds, target = call.inputs("cuda", 0)
    call.run(preds, target)
    call.run(preds, target)
    torch.cuda.synchronize()
    gate = busy(torch.cuda.current_stream())
    with waiting_is_an_error():
        call.run(preds, target)
    assert not gate.query(), "the call came back only after the GPU had finished earlier work"
    torch.cuda.synchronize()


@pytest.mark.needs_cuda
@every_call
def test_runs_on_the_current_stream(call: PublicCall) -> None:
    """Inputs that a side stream is still writing are read in order, and only there."""
    old = call.inputs("cuda", 0)
    new = call.inputs("cuda", 1)
    want = call.results(*new)
    preds, target = old[0].clone(), old[1].clone()
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    busy(side)
    with torch.cuda.stream(side):
        preds.copy_(new[0])
        target.copy_(new[1])
        got = call.results(preds, target)
    side.synchronize()
    same(got, want)


@pytest.mark.needs_cuda
@every_call
def test_streams_do_not_share_scratch(call: PublicCall) -> None:
    inputs = [call.inputs("cuda", seed) for seed in range(4)]
    want = [call.results(*pair) for pair in inputs]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in inputs]
    got: list[list[tuple[Tensor, ...]]] = [[] for _ in inputs]
    for _ in range(20):
        for stream, pair, results in zip(streams, inputs, got, strict=True):
            with torch.cuda.stream(stream):
                results.append(call.results(*pair))
    torch.cuda.synchronize()
    for results, expected in zip(got, want, strict=True):
        for result in results:
            same(result, expected)


@pytest.mark.needs_cuda
@every_call
def test_graph_replay_follows_the_inputs(call: PublicCall) -> None:
    preds, target = (t.clone() for t in call.inputs("cuda", 0))
    call.run(preds, target)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call.results(preds, target)
    for seed in range(1, 4):
        fresh = call.inputs("cuda", seed)
        preds.copy_(fresh[0])
        target.copy_(fresh[1])
        graph.replay()
        eager = call.results(*fresh)
        same(captured, eager)


@pytest.mark.needs_cuda
@every_call
def test_graph_replays_beside_eager_work(call: PublicCall) -> None:
    """A captured launch must not share its ticket with the stream it was captured on."""
    preds, target = call.inputs("cuda", 0)
    want = call.results(preds, target)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call.results(preds, target)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    for _ in range(30):
        with torch.cuda.stream(side):
            graph.replay()
        eager = call.results(preds, target)
    torch.cuda.synchronize()
    same(captured, want)
    same(eager, want)


@pytest.mark.needs_two_gpus
@every_call
def test_other_device_than_the_current(call: PublicCall) -> None:
    want = call.results(*call.inputs("cuda:0", 0))
    with torch.cuda.device(0):
        got = call.results(*call.inputs("cuda:1", 0))
    assert all(t.device == torch.device("cuda:1") for t in got)
    same(got, want)


@pytest.mark.needs_two_gpus
@every_call
def test_two_devices_in_one_call_are_refused(call: PublicCall) -> None:
    preds, target = call.inputs("cuda:0", 0)
    with pytest.raises(RuntimeError, match="same device"):
        call.run(preds, target.to("cuda:1"))


@pytest.mark.needs_cuda
@every_call
def test_host_and_device_in_one_call_are_refused(call: PublicCall) -> None:
    preds, target = call.inputs("cuda", 0)
    with pytest.raises(RuntimeError, match="same device"):
        call.run(preds, target.cpu())
    with pytest.raises(RuntimeError, match="same device"):
        call.run(preds.cpu(), target)


@every_call
def test_meta_and_real_tensors_are_refused(call: PublicCall, device: str) -> None:
    """The dispatcher takes a mixed call for a meta call, which would return unwritten memory."""
    preds, target = call.inputs(device, 0)
    with pytest.raises(RuntimeError, match="same device"):
        call.run(preds, target.to("meta"))
    with pytest.raises(RuntimeError, match="same device"):
        call.run(preds.to("meta"), target)


@every_call
def test_compiles_whole_where_a_gradient_is_wanted(call: PublicCall, device: str) -> None:
    preds, target = call.inputs(device, 2)
    if not preds.is_floating_point():
        pytest.skip("integers have no gradient")
    torch._dynamo.reset()
    compiled = torch.compile(call.run, fullgraph=True, backend="aot_eager")
    out = compiled(preds.clone().requires_grad_(), target)
    same((out,) if isinstance(out, Tensor) else tuple(out), call.results(preds, target))


@pytest.mark.needs_cuda
@every_call
def test_host_threads_on_one_stream(call: PublicCall) -> None:
    """Calls in flight on one stream share its scratch memory and must not mix their launches."""
    inputs = [call.inputs("cuda", seed) for seed in range(4)]
    want = [call.results(*pair) for pair in inputs]

    def repeat(i: int) -> list[tuple[Tensor, ...]]:
        return [call.results(*inputs[i]) for _ in range(50)]

    with ThreadPoolExecutor(len(inputs)) as pool:
        for results, expected in zip(pool.map(repeat, range(len(inputs))), want, strict=True):
            for result in results:
                same(result, expected)


@pytest.mark.needs_cuda
@pytest.mark.parametrize(
    "call", [c for c in CALLS if c.name in ("psnr", "ssim", "multiclass-macro")], ids=str
)
def test_compiled_with_cuda_graphs(call: PublicCall) -> None:
    """Memory kept between calls must not come from the pool that a captured graph reclaims."""
    torch._dynamo.reset()
    compiled = torch.compile(call.run, mode="reduce-overhead", fullgraph=True)
    for seed in range(4):
        preds, target = call.inputs("cuda", seed)
        torch.compiler.cudagraph_mark_step_begin()
        out = compiled(preds, target)
        got = tuple(t.clone() for t in ((out,) if isinstance(out, Tensor) else out))
        same(got, call.results(preds, target))
