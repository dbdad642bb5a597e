"""Nodes of C++ beside what else of torch looks at a graph: compilers, hooks, tracers, anomalies."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from cases import image_pair
from gradient_reference import gradients
from quick_gradient_cases import SSIM_OPTIONS, every_node, in_one_pass, leaves
from syncfree._ops.ssim_backward import DifferentiableSsim
from test_gradient_laws import CALLS, Results, pair, total


@every_node
def test_compiled_backward_passes(call: Callable[[Tensor, Tensor], Results], device: str) -> None:
    """torch.compile of the backward pass alone, which lifts what nodes hold out of them."""
    torch._dynamo.reset()
    a, b = leaves(device)
    want = torch.autograd.grad(total(call(a, b)), (a, b))
    compiler = torch.compile(backend="eager")
    for _ in range(2):
        value = total(call(a, b))
        for _ in range(2):  # the second finds what the first has left
            a.grad = b.grad = None
            with torch._dynamo.compiled_autograd._enable(compiler):
                (2 * value).backward(retain_graph=True)
            for leaf, gradient in zip((a, b), want, strict=True):
                torch.testing.assert_close(leaf.grad, 2 * gradient, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("when", ["tensor", "node"])
def test_a_hook_of_one_loss_that_calls_the_node_of_another(when: str, device: str) -> None:
    """Each node has gradients of its own, whichever the engine is at."""
    first, second = leaves(device), tuple(x.requires_grad_() for x in pair(device, seed=1))
    want = torch.autograd.grad(in_one_pass(*second), second)
    one, other = in_one_pass(*first), in_one_pass(*second)
    got: list[Tensor] = []

    def call(gradient: Any) -> None:
        with torch.no_grad():
            arrived = gradient[0] if when == "node" else gradient
            got.extend(other.grad_fn(torch.ones_like(arrived))[:2])

    if when == "tensor":
        one.register_hook(call)
    else:
        one.grad_fn.register_prehook(call)
    one.backward()
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-9)


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


def test_anomalies_name_node_and_line_of_the_forward_pass(device: str) -> None:
    a, b = leaves(device)

    def the_forward_pass() -> Tensor:
        return DifferentiableSsim.quick(a, b, *SSIM_OPTIONS)

    with torch.autograd.detect_anomaly(check_nan=True):
        value = the_forward_pass()
        with (
            pytest.warns(UserWarning, match=r"CppNode<SyncfreeSsim>(.|\n)*in the_forward_pass"),
            pytest.raises(RuntimeError, match="'torch::autograd::CppNode<SyncfreeSsim>' returned"),
        ):
            value.backward(torch.full_like(value, torch.nan))


@pytest.mark.parametrize("usual", [False, True], ids=["quick", "usual"])
def test_errors_of_a_backward_pass(usual: bool, device: str) -> None:
    """What is saved comes back in another shape."""
    a, b = leaves(device)
    call = DifferentiableSsim.apply if usual else DifferentiableSsim.quick
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x[0, 0]):
        value = call(a, b, *SSIM_OPTIONS)
    with pytest.raises(ValueError, match="BxCxHxW"):
        value.backward()


@pytest.mark.parametrize("shape", [(2, 2, 14, 19), (1, 1, 224, 256)], ids=str)
@pytest.mark.parametrize("name", ["ssim", "l1-ssim-loss", "psnr"])
@pytest.mark.usefixtures("either_way")
def test_what_torch_jit_traces_has_its_gradient(
    name: str, shape: tuple[int, ...], device: str
) -> None:
    """Of frames too, whose losses ask operators on CUDA what they can."""
    a, b = (x.requires_grad_() for x in image_pair(shape, torch.float32, device))
    want = torch.autograd.grad(total(CALLS[name](a, b)), (a, b))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        traced = torch.jit.trace(lambda x, y: total(CALLS[name](x, y)), (a, b), check_trace=False)
        got = torch.autograd.grad(traced(a, b), (a, b))
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("name", ["ssim", "ssim-loss", "l1-ssim-loss", "psnr"])
def test_nested_images_are_refused(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a prototype
        nested = torch.nested.nested_tensor([torch.rand(1, 16, 16)] * 2, requires_grad=True)
    with pytest.raises(TypeError, match="a dense tensor, but got a nested tensor"):
        CALLS[name](nested, nested)
