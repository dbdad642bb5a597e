"""Nodes of C++ in torch's graph: what those of Python find, and all who listen are told."""

from __future__ import annotations

import gc
import sys
import threading
import warnings
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from cases import image_pair
from gradient_reference import gradients
from quick_gradients import WITHOUT_QUICK_WAY, differentiables, take_the_usual_way
from syncfree._ops.psnr_backward import DifferentiablePsnr
from syncfree._ops.ssim_backward import DifferentiableSsim, DifferentiableSsimWithMap
from syncfree.losses._ssim_node import SsimLoss
from test_gradient_laws import CALLS, Results, pair, total

SSIM_OPTIONS = (True, (1.5,), (11,), 1.0, None, 0.01, 0.03, 1, False)
PSNR_OPTIONS = (1.0, None, 10.0, 1, None)
QUICK_CALLS = {name: call for name, call in CALLS.items() if name != "image-quality"}

every_call = pytest.mark.parametrize("call", QUICK_CALLS.values(), ids=QUICK_CALLS)


def node_of(value: Tensor) -> str:
    assert value.grad_fn is not None
    return value.grad_fn.name()


def leaves(device: str) -> tuple[Tensor, Tensor]:
    a, b = pair(device)
    return a.requires_grad_(), b.requires_grad_()


def test_whoever_can_goes_the_quick_way() -> None:
    usual = {each.__name__ for each in differentiables() if not hasattr(each.quick, "usual")}
    assert usual == WITHOUT_QUICK_WAY


@every_call
def test_bits_are_those_of_the_usual_way(
    call: Callable[[Tensor, Tensor], Results], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = image_pair((3, 3, 60, 130), torch.float32, device)

    def both() -> tuple[Tensor, ...]:
        a, b = (x.clone().requires_grad_() for x in images)
        value = total(call(a, b))
        return value.detach(), *torch.autograd.grad(value, (a, b))

    quick = both()
    take_the_usual_way(monkeypatch)
    assert all(torch.equal(x, y) for x, y in zip(quick, both(), strict=True))


def test_what_is_not_plain_goes_the_usual_way(device: str) -> None:
    """A subclass, a function mode, an option of another type, and keywords."""

    class Subclass(Tensor):
        pass

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            return function(*args, **(kwargs or {}))

    a, b = leaves(device)
    plain = DifferentiableSsim.quick(a, b, *SSIM_OPTIONS)
    assert "SyncfreeOperator" in node_of(plain)
    with Mode():
        under_mode = DifferentiableSsim.quick(a, b, *SSIM_OPTIONS)
    of_subclass = DifferentiableSsim.quick(a.as_subclass(Subclass), b, *SSIM_OPTIONS)
    of_ints = DifferentiableSsim.quick(a, b, *SSIM_OPTIONS[:3], 1, *SSIM_OPTIONS[4:])
    for value in (under_mode, of_subclass, of_ints):
        assert node_of(value) == "DifferentiableSsimBackward"
        assert torch.equal(value, plain)
    with Mode():
        loss = SsimLoss.quick(a, b, 1.0, False, SSIM_OPTIONS)
    assert node_of(loss) == "SsimLossBackward"
    for unusual in (
        (1, False, SSIM_OPTIONS),
        (1.0, 0, SSIM_OPTIONS),
        (1.0, False, [*SSIM_OPTIONS]),
    ):
        assert node_of(SsimLoss.quick(a, b, *unusual)) == "SsimLossBackward"
    assert "SyncfreeSsimLoss" in node_of(SsimLoss.quick(a, b, 1.0, False, SSIM_OPTIONS))


def test_errors_are_those_of_the_usual_way(device: str) -> None:
    a, b = leaves(device)
    ways = {DifferentiableSsim: SSIM_OPTIONS, DifferentiablePsnr: PSNR_OPTIONS}
    for function, options in ways.items():
        for arguments in (
            (a, b[:1], *options),
            (a, b, *options[:-1], "no"),
            (a, b),
            (a, None, *options),
            (a[0, 0], b, *options),
        ):
            texts = []
            for call in (function.quick, function.apply):
                with pytest.raises(Exception) as raised:  # noqa: PT011  (compared below)
                    call(*arguments)
                text = str(raised.value).partition("\nException raised from")[0]
                texts.append((raised.type, text))
            assert texts[0] == texts[1]


def test_only_what_is_asked_for_is_found(device: str) -> None:
    """Of two that need a gradient, which the usual way would find both."""
    a, b = leaves(device)
    want = gradients(lambda x, y: DifferentiableSsim.quick(x, y, *SSIM_OPTIONS), a, b)
    for i, leaf in enumerate((a, b)):
        value = DifferentiableSsim.quick(a, b, *SSIM_OPTIONS)
        assert torch.equal(torch.autograd.grad(value, leaf)[0], want[i])


def test_a_result_that_nobody_uses(device: str) -> None:
    a, b = leaves(device)
    options = SSIM_OPTIONS
    value, full = DifferentiableSsimWithMap.quick(a, b, *options)
    alone = gradients(lambda x, y: DifferentiableSsim.quick(x, y, *options), a, b)
    got = torch.autograd.grad(value, (a, b), retain_graph=True)
    assert all(torch.equal(g, w) for g, w in zip(got, alone, strict=True))
    mean = torch.autograd.grad(full.mean(), (a, b))
    for g, w in zip(mean, alone, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-7)


@every_call
def test_a_graph_is_used_once(call: Callable[[Tensor, Tensor], Results], device: str) -> None:
    value = total(call(*leaves(device)))
    value.backward(retain_graph=True)
    value.backward()
    with pytest.raises(RuntimeError, match="second time"):
        value.backward()


@every_call
def test_several_gradients_at_once(call: Callable[[Tensor, Tensor], Results], device: str) -> None:
    a, b = leaves(device)
    factors = torch.tensor([1.0, -2.0], device=device)
    value = total(call(a, b))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")
        several = torch.autograd.grad(value, (a, b), factors, True, is_grads_batched=True)
    for i, factor in enumerate(factors):
        alone = torch.autograd.grad(value, (a, b), factor, True)
        for many, one in zip(several, alone, strict=True):
            torch.testing.assert_close(many[i], one, rtol=1e-5, atol=1e-9)


@every_call
def test_compiled_backward_passes(call: Callable[[Tensor, Tensor], Results], device: str) -> None:
    """torch.compile of the backward pass alone, which lifts what nodes hold out of them."""
    torch._dynamo.reset()
    a, b = leaves(device)
    want = torch.autograd.grad(total(call(a, b)), (a, b))
    compiler = torch.compile(backend="eager")
    for _ in range(2):
        a.grad = b.grad = None
        value = total(call(a, b))
        with torch._dynamo.compiled_autograd._enable(compiler):
            value.backward()
        for leaf, gradient in zip((a, b), want, strict=True):
            torch.testing.assert_close(leaf.grad, gradient)


def test_saved_tensors_go_where_hooks_send_them(device: str) -> None:
    a, b = leaves(device)
    packed: list[Tensor] = []

    def pack(tensor: Tensor) -> int:
        packed.append(tensor.detach())
        return len(packed) - 1

    want = gradients(CALLS["ssim"], a, b)
    with torch.autograd.graph.saved_tensors_hooks(pack, packed.__getitem__):
        value = CALLS["ssim"](a, b)
    assert [each.data_ptr() for each in packed] == [a.data_ptr(), b.data_ptr()]
    got = torch.autograd.grad(value, (a, b))
    assert all(torch.equal(g, w) for g, w in zip(got, want, strict=True))


def test_anomalies_name_the_line_of_the_forward_pass(device: str) -> None:
    a, b = leaves(device)

    def the_forward_pass() -> Tensor:
        return DifferentiableSsim.quick(a, b, *SSIM_OPTIONS)

    with (
        torch.autograd.detect_anomaly(check_nan=True),
        pytest.warns(UserWarning, match="the_forward_pass"),
        pytest.raises(RuntimeError, match="returned nan values"),
    ):
        (the_forward_pass() * torch.nan).backward()


@every_call
def test_nothing_outlives_a_graph(call: Callable[[Tensor, Tensor], Results], device: str) -> None:
    a, b = leaves(device)
    preds = a * 1.0  # what only the graph holds
    gone = weakref.ref(preds)
    value = total(call(preds, b))
    del preds
    value.backward()
    del value
    gc.collect()
    assert gone() is None
    kept = sys.getrefcount(a), sys.getrefcount(b), sys.getrefcount(None)
    for _ in range(100):
        torch.autograd.grad(total(call(a, b)), (a, b))
    now = sys.getrefcount(a), sys.getrefcount(b), sys.getrefcount(None)
    assert all(abs(x - y) < 50 for x, y in zip(kept, now, strict=True))


def test_threads_share_a_graph(device: str) -> None:
    """What the forward pass found goes to one of them; all get the same."""
    a, b = (x.requires_grad_() for x in image_pair((1, 1, 224, 256), torch.float32, device))
    value = SsimLoss.quick(a, b, 0.2, True, SSIM_OPTIONS)
    one = torch.ones((), device=device)
    found: list[tuple[Tensor, ...]] = []

    def backward() -> None:
        found.append(torch.autograd.grad(value, (a, b), one, retain_graph=True))

    threads = [threading.Thread(target=backward) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(threads)
    assert len({gradient.data_ptr() for each in found for gradient in each}) == 2 * len(threads)
    for each in found:
        for gradient, first in zip(each, found[0], strict=True):
            assert (gradient - first).abs().max() <= 1e-6 * first.abs().max()
