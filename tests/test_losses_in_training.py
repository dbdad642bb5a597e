"""Losses that find their gradients with their value, as training loops on CUDA use them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cases import image_pair
from gradient_reference import check, gradients, similarity, true_gradients
from syncfree.benchmarking.launches import count_launches
from syncfree.losses import _ssim_node, l1_ssim_loss, ssim_loss

pytestmark = pytest.mark.usefixtures("either_way")


def training(call: Callable[[Tensor, Tensor], Tensor], shape: tuple[int, ...]) -> None:
    a, b = image_pair(shape, torch.float32, "cuda")
    a.requires_grad_()
    one = torch.ones((), device="cuda")
    launches = count_launches(lambda: torch.autograd.grad(call(a, b), a, one))
    assert launches == 2  # the pass, and what scales by a factor that is one


@pytest.mark.needs_cuda
@pytest.mark.parametrize("shape", [(1, 3, 720, 1280), (4, 3, 224, 224)], ids=str)
@pytest.mark.parametrize("call", [ssim_loss, l1_ssim_loss])
def test_images_take_one_pass(
    call: Callable[[Tensor, Tensor], Tensor], shape: tuple[int, ...]
) -> None:
    training(call, shape)


@pytest.mark.needs_cuda
@pytest.mark.parametrize("shape", [(2, 3, 720, 1280), (3, 3, 256, 256)], ids=str)
@pytest.mark.parametrize("call", [ssim_loss, l1_ssim_loss])
def test_losses_are_true(call: Callable[[Tensor, Tensor], Tensor], shape: tuple[int, ...]) -> None:
    images = image_pair(shape, torch.float32, "cuda")
    weight = 1.0 if call is ssim_loss else 0.2

    def true_loss(a: Tensor, b: Tensor) -> Tensor:
        value = similarity(a, b).values.mean()
        return weight * (1 - value) + (1 - weight) * (a - b).abs().mean()

    check(gradients(call, *images), true_gradients(true_loss, *images))
    with torch.no_grad():
        alone = call(*images)
    a, b = images
    torch.testing.assert_close(call(a.requires_grad_(), b).detach(), alone, rtol=0, atol=2e-7)
    torch.testing.assert_close(alone.double(), true_loss(a.double(), b.double()), rtol=0, atol=2e-7)


@pytest.mark.needs_cuda
def test_without_a_gradient_nothing_is_kept() -> None:
    a, b = image_pair((1, 3, 1080, 1920), torch.float32, "cuda")
    ssim_loss(a, b)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    ssim_loss(a, b)
    assert torch.cuda.max_memory_allocated() - before < 1 << 20


@pytest.mark.needs_cuda
def test_training_keeps_one_gradient() -> None:
    """Of the image that needs one, and until the backward pass hands it out."""
    a, b = image_pair((1, 3, 1080, 1920), torch.float32, "cuda")
    a.requires_grad_()
    ssim_loss(a, b).backward()
    a.grad = None
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    value = ssim_loss(a, b)
    value.backward()
    assert torch.cuda.max_memory_allocated() - before < a.nbytes + (1 << 20)
    del value
    a.grad = None
    assert torch.cuda.memory_allocated() - before < 1 << 20


@pytest.mark.needs_cuda
def test_training_with_a_gradient_scaler_and_graphs() -> None:
    a, b = image_pair((1, 3, 720, 1280), torch.float32, "cuda")
    a.requires_grad_()
    want = torch.autograd.grad(l1_ssim_loss(a, b), a)[0]
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**16)
    scaler.scale(l1_ssim_loss(a, b)).backward()
    torch.testing.assert_close(a.grad, want * 2.0**16, rtol=1e-6, atol=0)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.autograd.grad(l1_ssim_loss(a, b), a)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = l1_ssim_loss(a, b)
        (captured,) = torch.autograd.grad(value, a)
    for _ in range(2):
        graph.replay()
        assert (captured - want).abs().max() <= 1e-6 * want.abs().max()
    with torch.no_grad():
        a.copy_(b)
    graph.replay()
    assert value == 0
    assert (captured == 0).all()


@pytest.mark.needs_cuda
@pytest.mark.parametrize("forward_is_captured", [True, False])
def test_a_backward_pass_replayed_alone(forward_is_captured: bool) -> None:
    """What multiplies in place would do so again."""
    a, b = image_pair((1, 3, 720, 1280), torch.float32, "cuda")
    a.requires_grad_()
    half = torch.tensor(0.5, device="cuda")
    want = torch.autograd.grad(l1_ssim_loss(a, b), a, half)[0]
    forward, backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()  # a backward pass runs where its forward pass ran
    stream.wait_stream(torch.cuda.current_stream())
    if forward_is_captured:
        with torch.cuda.graph(forward, stream=stream):
            value = l1_ssim_loss(a, b)
        forward.replay()
    else:
        with torch.cuda.stream(stream):
            value = l1_ssim_loss(a, b)
    pool = forward.pool() if forward_is_captured else None
    with torch.cuda.graph(backward, pool=pool, stream=stream):
        (got,) = torch.autograd.grad(value, a, half)
    for _ in range(3):
        backward.replay()
        assert (got - want).abs().max() <= 1e-6 * want.abs().max()


@pytest.mark.needs_cuda
def test_on_another_stream() -> None:
    a, b = image_pair((1, 3, 720, 1280), torch.float32, "cuda")
    want = gradients(l1_ssim_loss, a, b)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        got = gradients(l1_ssim_loss, a, b)
    stream.synchronize()
    assert all(torch.equal(g, w) for g, w in zip(got, want, strict=True))


@pytest.mark.needs_two_gpus
def test_on_another_device() -> None:
    images = image_pair((1, 3, 720, 1280), torch.float32, "cuda:0")
    want = gradients(l1_ssim_loss, *images)
    got = gradients(l1_ssim_loss, *(x.to("cuda:1") for x in images))
    assert all(torch.equal(g.cpu(), w.cpu()) for g, w in zip(got, want, strict=True))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """An entry for each loss that asks whether one pass gives its gradients."""
    questions: list[int] = []
    ask = _ssim_node.ssim_gives_gradients
    monkeypatch.setattr(
        _ssim_node, "ssim_gives_gradients", lambda *a: questions.append(len(a)) or ask(*a)
    )
    return questions


@pytest.mark.needs_cuda
def test_losses_whose_memory_is_spared_take_two(asked: list[int]) -> None:
    """What one pass keeps would stay where it is."""
    images = image_pair((1, 1, 720, 1280), torch.float32, "cuda")
    with torch.autograd.graph.save_on_cpu():
        got = gradients(l1_ssim_loss, *images)
    assert not asked
    for g, w in zip(got, gradients(l1_ssim_loss, *images), strict=True):
        torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-12)
    assert len(asked) == 1


@pytest.mark.needs_cuda
def test_compiled_losses_take_two(asked: list[int]) -> None:
    """What is kept for backward must be a tensor that torch.compile knows of."""
    torch._dynamo.reset()
    images = image_pair((1, 1, 720, 1280), torch.float32, "cuda")
    compiled = torch.compile(l1_ssim_loss, fullgraph=True, backend="aot_eager")
    got = gradients(compiled, *images)
    assert not asked
    for g, w in zip(got, gradients(l1_ssim_loss, *images), strict=True):
        torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-12)
    assert len(asked) == 1
