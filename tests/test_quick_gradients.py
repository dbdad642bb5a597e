"""Nodes of C++ in torch's graph: what those of Python find."""

from __future__ import annotations

import gc
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from cases import image_pair
from gradient_reference import gradients
from quick_gradient_cases import (
    PSNR_OPTIONS,
    SSIM_OPTIONS,
    Ops,
    every_call,
    every_node,
    in_one_pass,
    leaves,
    node_of,
)
from quick_gradients import WITHOUT_QUICK_WAY, differentiables, take_the_usual_way
from syncfree._ops import quick_calls
from syncfree._ops.psnr_backward import DifferentiablePsnr
from syncfree._ops.ssim_backward import DifferentiableSsim, DifferentiableSsimWithMap
from syncfree.losses._ssim_node import SsimLoss
from test_gradient_laws import Results, total


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
    assert node_of(plain) == "torch::autograd::CppNode<SyncfreeSsim>"
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


@pytest.mark.parametrize("asked", [(0,), (1,), (0, 1)], ids=str)
def test_only_what_is_asked_for_is_found(asked: tuple[int, ...], device: str) -> None:
    """Of two that need a gradient, of which the usual way would find both."""
    both = leaves(device)
    want = gradients(lambda x, y: DifferentiableSsim.quick(x, y, *SSIM_OPTIONS), *both)
    value = DifferentiableSsim.quick(*both, *SSIM_OPTIONS)
    with Ops() as ops:
        got = torch.autograd.grad(value, [both[i] for i in asked], torch.ones_like(value))
    ((name, arguments),) = ops.seen
    assert name == "ssim_backward"
    assert arguments[7:9] == (0 in asked, 1 in asked)
    assert all(torch.equal(g, want[i]) for g, i in zip(got, asked, strict=True))


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


@pytest.mark.usefixtures("either_way")
def test_one_pass_is_used_once(device: str) -> None:
    a, b = leaves(device)
    with Ops() as ops:
        value = in_one_pass(a, b)
    assert ops.names() == ["ssim_with_gradients"]
    for expected in (["may_scale", "scale_"], ["ssim_backward"]):
        with Ops() as ops:
            torch.autograd.grad(3 * value, (a, b), retain_graph=True)
        assert ops.names() == expected


class NoGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> None:
        return None


@pytest.mark.usefixtures("either_way")
@every_node
def test_where_no_gradient_arrives(call: Callable[[Tensor, Tensor], Results], device: str) -> None:
    a, b = leaves(device)
    result = call(a, b)
    value = result if isinstance(result, Tensor) else result[0]
    NoGradient.apply(value).sum().backward()
    assert a.grad is None
    assert b.grad is None


@pytest.mark.parametrize(
    "unfit",
    [
        ("ssim_with_map", "psnr_backward", 0, (0, 2)),
        ("psnr", "ssim_backward", 0, (0,)),
        ("ssim", "scale_", 0, (0,)),
        ("ssim", "ssim_backward", 0, (5,)),
        ("ssim", "ssim_backward", 0, ()),
        ("ssim", "ssim_backward", 0, (0, 1)),
        ("ssim", "ssim_backward", 1, (0,)),
        ("ssim", "ssim_backward", -1, (0,)),
        ("ssim_update", "ssim_backward", 0, (0,)),
        ("safe_divide", "ssim_backward", 0, (0,)),
    ],
    ids=str,
)
def test_operators_that_do_not_fit_each_other(unfit: tuple[str, str, int, tuple[int, ...]]) -> None:
    module = quick_calls._module()
    assert module is not None
    forward, backward, states, slots = unfit
    names = f"syncfree::{forward}", f"syncfree::{backward}"
    assert module.differentiable(*names, states, slots, len) is len


def test_callables_are_not_made_by_hand() -> None:
    with pytest.raises(TypeError, match="cannot create"):
        type(DifferentiableSsim.quick)()


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
