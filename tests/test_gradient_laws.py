"""What holds for every gradient: gradcheck, what is kept, errors, compiling, capture."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from cases import image_pair
from gradient_reference import gradients
from syncfree.functional.image import (
    image_quality,
    multiscale_structural_similarity_index_measure,
    peak_signal_noise_ratio,
    structural_similarity_index_measure,
)
from syncfree.losses import l1_ssim_loss, ssim_loss

pytestmark = pytest.mark.usefixtures("either_way")

Results = Tensor | tuple[Tensor, ...]


def ssim(preds: Tensor, target: Tensor, **options: object) -> Results:
    return structural_similarity_index_measure(preds, target, **{"data_range": 1.0, **options})


def ms_ssim(preds: Tensor, target: Tensor, **options: object) -> Results:
    defaults = {"data_range": 1.0, "betas": (0.4, 0.6), "normalize": "simple"}
    return multiscale_structural_similarity_index_measure(preds, target, **{**defaults, **options})


CALLS: dict[str, Callable[[Tensor, Tensor], Results]] = {
    "psnr": lambda a, b: peak_signal_noise_ratio(a, b, 1.0),
    "psnr-per-image": lambda a, b: peak_signal_noise_ratio(
        a, b, (-9.0, 9.0), dim=(1, 2, 3), reduction="none"
    ),
    "ssim": lambda a, b: ssim(a, b),
    "ssim-per-image": lambda a, b: ssim(a, b, reduction="none"),
    "ssim-range-of-data": lambda a, b: ssim(a, b, data_range=None),
    "ssim-map": lambda a, b: ssim(a, b, return_full_image=True),
    "ssim-contrast": lambda a, b: ssim(a, b, return_contrast_sensitivity=True),
    "ssim-uniform": lambda a, b: ssim(a, b, gaussian_kernel=False, kernel_size=(3, 5)),
    "ms-ssim": lambda a, b: ms_ssim(a, b),
    "ms-ssim-per-image": lambda a, b: ms_ssim(
        a, b, gaussian_kernel=False, kernel_size=(3, 5), data_range=(0.1, 0.9), reduction="none"
    ),
    "ms-ssim-range-of-data": lambda a, b: ms_ssim(a, b, data_range=None, normalize="relu"),
    "image-quality": lambda a, b: image_quality(a, b, 1.0),
    "ssim-loss": lambda a, b: ssim_loss(a, b),
    "l1-ssim-loss": lambda a, b: l1_ssim_loss(a, b),
}

every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


def total(results: Results) -> Tensor:
    """One number, to which every element of every result contributes differently."""
    results = (results,) if isinstance(results, Tensor) else tuple(results)
    sums = []
    for i, result in enumerate(results):
        weights = torch.arange(result.numel(), device=result.device, dtype=result.dtype)
        sums.append((result * torch.cos(weights + i).reshape(result.shape)).sum())
    return torch.stack(sums).sum()


def pair(device: str, dtype: torch.dtype = torch.float32, seed: int = 0) -> tuple[Tensor, Tensor]:
    return image_pair((2, 2, 14, 19), dtype, device, seed)


@pytest.mark.parametrize("name", [n for n in CALLS if "range-of-data" not in n])
def test_gradcheck(name: str, device: str) -> None:
    generator = torch.Generator().manual_seed(4)
    shape = (2, 1, 12, 13)
    images = [
        torch.rand(shape, generator=generator, dtype=torch.float64).to(device).requires_grad_()
        for _ in "ab"
    ]

    def function(a: Tensor, b: Tensor) -> Results:
        results = CALLS[name](a, b)
        return results if isinstance(results, Tensor) else tuple(results)

    assert torch.autograd.gradcheck(function, images, atol=1e-7, fast_mode=False)


def test_gradcheck_of_volumes(device: str) -> None:
    generator = torch.Generator().manual_seed(4)
    images = [
        torch.rand((1, 1, 4, 5, 6), generator=generator, dtype=torch.float64)
        .to(device)
        .requires_grad_()
        for _ in "ab"
    ]
    for kernel_size in (1, 3, 5):
        assert torch.autograd.gradcheck(
            lambda a, b, k=kernel_size: ssim(
                a, b, sigma=0.4, kernel_size=k, return_full_image=True
            ),
            images,
        )


@every_call
def test_under_a_checkpoint(call: Callable[[Tensor, Tensor], Results], device: str) -> None:
    """Which lets what is saved be read once."""
    images = pair(device)
    want = gradients(lambda a, b: total(call(a, b)), *images)
    got = gradients(
        lambda a, b: checkpoint(lambda a, b: total(call(a, b)), a, b, use_reentrant=False), *images
    )
    assert all(torch.equal(g, w) for g, w in zip(got, want, strict=True))


@every_call
def test_nothing_is_recorded_where_nothing_is_wanted(
    call: Callable[[Tensor, Tensor], Results], device: str
) -> None:
    a, b = pair(device)
    assert not total(call(a, b)).requires_grad
    with torch.no_grad():
        assert not total(call(a.clone().requires_grad_(), b)).requires_grad
    with torch.inference_mode():
        assert not total(call(a, b)).requires_grad


@every_call
def test_value_has_the_same_bits_with_a_gradient(
    call: Callable[[Tensor, Tensor], Results], device: str
) -> None:
    a, b = pair(device)
    assert torch.equal(total(call(a.clone().requires_grad_(), b)).detach(), total(call(a, b)))


@every_call
def test_only_what_needs_one_gets_one(
    call: Callable[[Tensor, Tensor], Results], device: str
) -> None:
    both = gradients(lambda a, b: total(call(a, b)), *pair(device))
    for i in range(2):
        images = [x.clone() for x in pair(device)]
        images[i].requires_grad_()
        total(call(*images)).backward()
        assert torch.equal(images[i].grad, both[i])
        assert images[1 - i].grad is None


@every_call
def test_dtypes_may_differ(call: Callable[[Tensor, Tensor], Results], device: str) -> None:
    """Each gradient has its image's dtype."""
    a, b = pair(device)
    want = gradients(lambda x, y: total(call(x, y)), a, b.half().float())
    got = gradients(lambda x, y: total(call(x, y)), a, b.half())
    assert (got[0].dtype, got[1].dtype) == (torch.float32, torch.float16)
    torch.testing.assert_close(got[0], want[0])
    torch.testing.assert_close(got[1].float(), want[1], rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["psnr", "psnr-per-image"])
def test_bytes_have_no_gradient(name: str, device: str) -> None:
    """PSNR alone takes bytes beside floats, as TorchMetrics does."""
    call, (a, _) = CALLS[name], pair(device)
    numbers = torch.randint(0, 3, a.shape, device=device, dtype=torch.uint8)
    for mixed, same in [
        (lambda x: call(x, numbers), lambda x: call(x, numbers.float())),
        (lambda x: call(numbers, x), lambda x: call(numbers.float(), x)),
    ]:
        got = gradients(lambda x, mixed=mixed: total(mixed(x)), a)
        want = gradients(lambda x, same=same: total(same(x)), a)
        assert torch.equal(got[0], want[0])


@every_call
def test_a_second_derivative_is_refused(
    call: Callable[[Tensor, Tensor], Results], device: str
) -> None:
    a, b = (x.requires_grad_() for x in pair(device))
    (gradient,) = torch.autograd.grad(total(call(a, b)), a, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        gradient.sum().backward()


@every_call
def test_changed_images_are_noticed(call: Callable[[Tensor, Tensor], Results], device: str) -> None:
    a, b = pair(device)
    value = total(call(a.clone().requires_grad_(), b))
    b += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


@every_call
def test_identical_bits_on_repeated_runs(
    call: Callable[[Tensor, Tensor], Results], device: str
) -> None:
    a, b = image_pair((3, 3, 60, 130), torch.float32, device)
    first = gradients(lambda x, y: total(call(x, y)), a, b)
    for _ in range(4):
        again = gradients(lambda x, y: total(call(x, y)), a, b)
        assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@every_call
def test_compiles_whole(
    call: Callable[[Tensor, Tensor], Results], backend: str, device: str
) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda a, b: total(call(a, b)), fullgraph=True, backend=backend)
    for seed in range(2):
        images = pair(device, seed=seed)
        want = gradients(lambda a, b: total(call(a, b)), *images)
        got = gradients(compiled, *images)
        for g, w in zip(got, want, strict=True):
            torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-6)


def test_ops_pass_opcheck(device: str) -> None:
    a, b = pair(device)
    images = [a, b.contiguous(memory_format=torch.channels_last)]
    window = (True, [1.5], [11], 1.0, None, 0.01, 0.03)
    ops = torch.ops.syncfree
    arguments = (*window, 1)
    for op in (ops.ssim, ops.ssim_with_map, ops.ssim_with_contrast, ops.image_quality):
        torch.library.opcheck(op.default, (*images, *arguments))
    torch.library.opcheck(ops.psnr.default, (*images, 1.0, None, 10.0, 1, None))

    one, each, full = (torch.rand(s, device=device) for s in ((), (2,), a.shape))
    for needs in ((True, True), (True, False), (False, True)):
        given = (one, each, full, each, each, *needs)
        torch.library.opcheck(ops.ssim_backward.default, (*images, *given, *arguments))
        given = (None, None, full, None, None, *needs)
        torch.library.opcheck(ops.ssim_backward.default, (*images, *given, *arguments))
        options = (one, *needs, 1.0, None, 10.0, 1, None)
        torch.library.opcheck(ops.psnr_backward.default, (*images, *options))
        options = (each, *needs, 1.0, [0.0, 1.0], 10.0, 0, [1, 2, 3])
        torch.library.opcheck(ops.psnr_backward.default, (*images, *options))


def test_ops_refuse_what_does_not_fit(device: str) -> None:
    a, b = pair(device)
    ssim_backward = torch.ops.syncfree.ssim_backward.default
    options = (True, True, True, [1.5], [11], 1.0, None, 0.01, 0.03, 1)
    absent = (None,) * 4
    with pytest.raises(RuntimeError, match="`grad_value` to have the shape"):
        ssim_backward(a, b, torch.ones(2, device=device), *absent, *options)
    with pytest.raises(RuntimeError, match="`grad_map` to have the shape"):
        ssim_backward(a, b, None, None, a[:, :1], None, None, *options)
    with pytest.raises(RuntimeError, match="floating dtype"):
        ssim_backward(a, b, torch.ones((), device=device, dtype=torch.int64), *absent, *options)
    with pytest.raises(RuntimeError, match="has no gradient"):
        ssim_backward(a.byte(), b, torch.ones((), device=device), *absent, *options)
    psnr_backward = torch.ops.syncfree.psnr_backward.default
    with pytest.raises(RuntimeError, match="`grad_value` to have the shape"):
        psnr_backward(a, b, torch.ones(2, device=device), True, True, 1.0, None, 10.0, 1, None)
    one = torch.ones((), device=device)
    with pytest.raises(RuntimeError, match="has no gradient"):
        psnr_backward(a, b.byte(), one, True, True, 1.0, None, 10.0, 1, None)


def test_empty_batches(device: str) -> None:
    a = torch.rand(0, 3, 16, 16, device=device)
    for call in CALLS.values():
        for gradient in gradients(lambda x, y, call=call: total(call(x, y)), a, a):
            assert gradient.shape == a.shape


@pytest.mark.needs_cuda
@every_call
def test_backward_never_waits(call: Callable[[Tensor, Tensor], Results]) -> None:
    a, b = image_pair((2, 3, 64, 96), torch.float32, "cuda")
    a.requires_grad_()
    one = torch.ones((), device="cuda")
    total(call(a, b)).backward(one)
    value = total(call(a, b))
    torch.cuda.synchronize()
    torch.cuda._sleep(200_000_000)
    gate = torch.cuda.Event()
    gate.record()
    torch.cuda.set_sync_debug_mode("error")
    try:
        value.backward(one)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert not gate.query(), "backward came back only after the GPU had finished earlier work"
    torch.cuda.synchronize()


@pytest.mark.needs_cuda
@every_call
def test_graph_replay_follows_the_images(call: Callable[[Tensor, Tensor], Results]) -> None:
    a, b = (x.clone() for x in pair("cuda"))
    a.requires_grad_()
    one = torch.ones((), device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.autograd.grad(total(call(a, b)), a, one)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (captured,) = torch.autograd.grad(total(call(a, b)), a, one)
    for seed in range(1, 4):
        fresh = pair("cuda", seed=seed)
        with torch.no_grad():
            a.copy_(fresh[0])
            b.copy_(fresh[1])
        graph.replay()
        (want,) = gradients(lambda x, fresh=fresh: total(call(x, fresh[1])), fresh[0])
        assert torch.equal(captured, want)
