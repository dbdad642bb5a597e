"""Losses of images that are not small, whose gradients CUDA finds in the pass for their value."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from cases import image_pair
from gradient_reference import check, gradients, similarity, true_gradients
from syncfree.benchmarking.launches import count_launches
from syncfree.losses import _one_pass, l1_ssim_loss, ssim_loss
from syncfree.losses._one_pass import SsimLoss
from test_gradients_of_frames import smooth

WINDOW = (True, [1.5], [11])
CONSTANTS = (0.01, 0.03)
OPTIONS = (*WINDOW, 1.0, None, *CONSTANTS, 1, False)

together = torch.ops.syncfree.ssim_with_gradients.default
gives_gradients = torch.ops.syncfree.ssim_gives_gradients.default
gradients_alone = torch.ops.syncfree.ssim_backward.default


@pytest.fixture
def one_pass(device: str) -> bool:
    """Whether this device's kernels give value and gradients at once."""
    if device == "cuda":
        memory = torch.cuda.get_device_properties(0).shared_memory_per_block_optin
    elif "CUDA_ON_CPU_LIBRARY" in os.environ:
        memory = int(os.environ.get("CUDA_ON_CPU_SHARED_MEMORY", "227")) << 10
    else:
        return False
    return bool(memory >= 127 << 10)  # of two blocks of a multiprocessor, each with a KiB besides


def loss(weight: float) -> Callable[[Tensor, Tensor], Tensor]:
    """As `ssim_loss` and `l1_ssim_loss` call it for large images on CUDA."""
    return lambda a, b: SsimLoss.apply(a, b, weight, OPTIONS)


def truth(preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    value = similarity(preds.double(), target.double()).values.mean()
    return value, (preds.double() - target.double()).abs().mean()


def check_op(images: list[Tensor], weight: float, needs: tuple[bool, bool] = (True, True)) -> None:
    """The values are true, and gradients are as the pass for them alone gives them.

    With the same bits where both passes walk, which is where images are large.
    """
    value, error, *got = together(*images, -weight, 1 - weight, *needs, *OPTIONS)
    true_value, true_error = truth(*images)
    assert value.dtype == error.dtype == torch.float32
    assert abs(value - true_value) <= 2e-7
    if weight == 1:
        assert error.numel() == 0
    else:
        assert abs(error - true_error) <= 2e-7
    device = images[0].device
    by_value = torch.tensor(-weight, device=device, dtype=torch.float64)
    share = torch.tensor((1 - weight) / images[0].numel(), device=device, dtype=torch.float64)
    by_error = None if weight == 1 else share.expand(images[0].shape[:1])
    arrived = by_value, None, None, None, by_error
    want = gradients_alone(*images, *arrived, *needs, *OPTIONS)
    for g, w, need in zip(got, want, needs, strict=True):
        assert g.numel() == (images[0].numel() if need else 0)
        if min(images[0].shape[2:]) >= 720 or not need:
            assert torch.equal(g, w)
        else:
            assert (g - w).abs().max() <= 1e-6 * w.abs().max()


@pytest.mark.parametrize("weight", [1.0, 0.2])
# Widths of one strip and of several, and fewer rows than there are blocks for.
@pytest.mark.parametrize(
    "shape",
    [(1, 1, 224, 224), (2, 3, 227, 228), (3, 1, 229, 256), (1, 2, 300, 260), (1, 1, 224, 1000)],
    ids=str,
)
def test_crops(shape: tuple[int, ...], weight: float, device: str, one_pass: bool) -> None:
    images = list(image_pair(shape, torch.float32, device))
    assert gives_gradients(*images, *OPTIONS) == one_pass
    check_op(images, weight)


@pytest.mark.parametrize("weight", [1.0, 0.2, 0.0])
# Units of eight rows and strips of columns: whole, cut, and one too narrow for the last warps. Of
# those with 1 to 5 rows in the last unit some are cut just above it, on 132 multiprocessors. To
# emulate as many, see tools/cuda_on_cpu.
@pytest.mark.parametrize(
    "shape",
    [
        (1, 1, 720, 1280),
        (1, 1, 721, 1444),
        (1, 1, 723, 1448),
        (1, 2, 723, 1284),
        (1, 1, 724, 1540),
        (2, 1, 725, 1540),
        (1, 1, 726, 6268),
        (1, 1, 900, 1600),
    ],
    ids=str,
)
def test_value_and_gradients(shape: tuple[int, ...], weight: float, device: str) -> None:
    check_op(list(image_pair(shape, torch.float32, device)), weight)


@pytest.mark.parametrize("needs", [(True, False), (False, True)], ids=["preds", "target"])
def test_one_gradient_alone(needs: tuple[bool, bool], device: str) -> None:
    check_op(list(image_pair((1, 1, 721, 1280), torch.float32, device)), 0.2, needs)


def test_where_levels_differ_all_over(device: str) -> None:
    check_op([smooth(727, 1500, seed).to(device) for seed in (1, 9)], 0.3)


def test_flat_places_in_noise(device: str) -> None:
    """Where a few warps have to go about pivots of their own, also where units begin and end."""
    images = list(image_pair((1, 1, 720, 1280), torch.float32, device))
    for top, left in ((0, 0), (0, 700), (30, 1260), (200, 180), (333, 420), (500, 0), (700, 1001)):
        for x, level in zip(images, (0.9, 0.7), strict=True):
            x[..., top : top + 40, left : left + 60].mul_(1e-3).add_(level)
    check_op(images, 0.2)


def test_layouts_that_go_another_way(device: str) -> None:
    """Channels last, a width that no vector divides, and a window of another size."""
    images = image_pair((1, 3, 720, 1280), torch.float32, device)
    check_op([x.contiguous(memory_format=torch.channels_last) for x in images], 0.2)
    check_op(list(image_pair((1, 1, 720, 1283), torch.float32, device)), 0.2)


def with_range(data_range: float) -> tuple[object, ...]:
    return *WINDOW, data_range, None, *CONSTANTS, 1, False


@pytest.mark.parametrize("top", [1e-6, 255.0, 1e9])
@pytest.mark.parametrize("size", [1.0, 1e-3, 1e-8, 1e-11])
def test_errors_that_are_small(top: float, size: float, device: str) -> None:
    """Sums of errors are kept in units of the range, beside which these lose no digits."""
    a, b = image_pair((1, 1, 720, 1280), torch.float32, device)
    a, b = a * (top * size), b * (top * size)
    _, error, _, _ = together(a, b, -0.2, 0.8, True, True, *with_range(top))
    want = (a.double() - b.double()).abs().mean()
    assert abs(error - want) <= 3e-7 * want


def test_small_errors_in_half_the_range_of_half_precision(device: str) -> None:
    """Which were once rounded to 2^-25 of the range: 2.3 % of these."""
    _, b = image_pair((1, 1, 720, 1280), torch.float32, device)
    a = b + 1e-3
    _, error, _, _ = together(a, b, -0.2, 0.8, True, True, *with_range(65504.0))
    want = (a.double() - b.double()).abs().mean()
    assert abs(error - want) <= 3e-7 * want


@pytest.mark.parametrize("data_range", [0.0, torch.nan, torch.inf, -1.0, 1e-310, 1e-31, 1e31])
def test_ranges_that_no_pixel_has_take_two_passes(data_range: float, device: str) -> None:
    images = image_pair((1, 1, 720, 1280), torch.float32, device)
    options = with_range(data_range)
    assert not gives_gradients(*images, *options)
    value, *_ = together(*images, -1.0, 0.0, True, True, *options)
    want = torch.ops.syncfree.ssim.default(*images, *options)
    torch.testing.assert_close(value, want, rtol=0, atol=0, equal_nan=True)


def test_who_gets_gradients_with_the_value(device: str, one_pass: bool) -> None:
    a, b = image_pair((1, 3, 720, 1280), torch.float32, device)
    assert gives_gradients(a, b, *OPTIONS) == one_pass
    assert not gives_gradients(a[..., :223, :], b[..., :223, :], *OPTIONS)
    assert not gives_gradients(a[..., :222], b[..., :222], *OPTIONS)
    assert not gives_gradients(a.half(), b.half(), *OPTIONS)
    assert not gives_gradients(a.double(), b.double(), *OPTIONS)
    nhwc = a.contiguous(memory_format=torch.channels_last)
    assert not gives_gradients(nhwc, b, *OPTIONS)
    valid = *OPTIONS[:-1], True
    assert not gives_gradients(a, b, *valid)
    assert not gives_gradients(a, b, False, [1.5], [7], *OPTIONS[3:])
    assert not gives_gradients(a, b, *WINDOW, None, [0.0, 1.0], *CONSTANTS, 1)
    assert not gives_gradients(a, b, *OPTIONS[:-2], 2)
    with pytest.raises(ValueError, match="to be the mean"):
        together(a, b, -0.2, 0.8, True, True, *OPTIONS[:-2], 2)


def test_the_same_bits_each_time(device: str) -> None:
    images = image_pair((2, 3, 720, 1280), torch.float32, device)
    arguments = (*images, -0.2, 0.8, True, True, *OPTIONS)
    first = together(*arguments)
    for _ in range(3):
        assert all(torch.equal(x, y) for x, y in zip(together(*arguments), first, strict=True))


def test_a_bad_pixel_spoils_the_value(device: str) -> None:
    images = image_pair((1, 1, 720, 1280), torch.float32, device)
    arguments = (-0.2, 0.8, True, True, *OPTIONS)
    images[0][0, 0, 300, 427] = torch.nan
    value, error, *_ = together(*images, *arguments)
    assert value.isnan()
    assert error.isnan()
    images[0][0, 0, 300, 427] = 0.5
    value, error, *_ = together(*images, *arguments)  # nothing of it is left
    assert value.isfinite()
    assert error.isfinite()


@pytest.mark.parametrize("weight", [1.0, 0.2])
def test_what_arrives_scales_the_gradients(weight: float, device: str) -> None:
    images = image_pair((1, 1, 720, 1280), torch.float32, device)
    one = gradients(loss(weight), *images)
    for factor in (4.0, -0.37, 2.0**16):
        got = gradients(lambda a, b, f=factor: loss(weight)(a, b) * f, *images)
        for g, w in zip(got, one, strict=True):
            torch.testing.assert_close(g, w * factor, rtol=1e-7, atol=0)


def test_a_second_pass_finds_them_anew(device: str) -> None:
    """What the first pass gave belongs to who asked for it."""
    leaves = [x.requires_grad_() for x in image_pair((1, 1, 720, 1280), torch.float32, device)]
    value = loss(0.2)(*leaves)
    first = torch.autograd.grad(value, leaves, retain_graph=True)
    kept = [g.clone() for g in first]
    second = torch.autograd.grad(2 * value, leaves, retain_graph=True)
    for g, k, s in zip(first, kept, second, strict=True):
        assert torch.equal(g, k)
        torch.testing.assert_close(s, 2 * k, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("how", ["once", "twice", "batched"])
def test_under_a_checkpoint(how: str, device: str) -> None:
    """Which lets what is saved be read once, also where gradients are found anew."""
    leaves = [x.requires_grad_() for x in image_pair((1, 1, 720, 1280), torch.float32, device)]
    one = torch.ones((), device=device)
    want = torch.autograd.grad(loss(0.2)(*leaves), leaves, one)
    value = checkpoint(loss(0.2), *leaves, use_reentrant=False)
    if how == "twice":
        torch.autograd.grad(value, leaves, one, retain_graph=True)
    if how == "batched":
        several = torch.autograd.grad(value, leaves, one[None], is_grads_batched=True)
        got = [g[0] for g in several]
    else:
        got = list(torch.autograd.grad(value, leaves, one))
    for g, w in zip(got, want, strict=True):
        assert (g - w).abs().max() <= 1e-6 * w.abs().max()


def test_a_second_derivative_is_refused(device: str) -> None:
    leaves = [x.requires_grad_() for x in image_pair((1, 1, 720, 1280), torch.float32, device)]
    first = torch.autograd.grad(loss(0.2)(*leaves), leaves, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        first[0].sum().backward()


def test_several_gradients_at_once(device: str) -> None:
    """As torch.autograd.functional.jacobian asks for them: each as if it came alone."""
    leaves = [x.requires_grad_() for x in image_pair((1, 1, 720, 1280), torch.float32, device)]
    arrived = torch.tensor([1.0, -3.0], device=device)

    for weight in (1.0, 0.2):
        several = torch.autograd.grad(loss(weight)(*leaves), leaves, arrived, is_grads_batched=True)
        for factor, *got in zip(arrived, *several, strict=True):
            alone = torch.autograd.grad(loss(weight)(*leaves), leaves, factor)
            for g, w in zip(got, alone, strict=True):
                assert (g - w).abs().max() <= 1e-6 * w.abs().max()


def test_changed_images_are_noticed(device: str) -> None:
    a, b = (x.requires_grad_() for x in image_pair((1, 1, 720, 1280), torch.float32, device))
    value = loss(0.2)(a, b)
    with torch.no_grad():
        a += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


def test_bad_factors_are_refused(device: str) -> None:
    scale = torch.ops.syncfree.scale_.default
    a, b = torch.ones(2, 3, device=device)
    with pytest.raises(ValueError, match="to be one number, but got shape"):
        scale(a, b, torch.ones(2, device=device))
    with pytest.raises(RuntimeError, match="floating dtype"):
        scale(a, b, torch.ones((), dtype=torch.int64, device=device))
    one = torch.ones((), device=device)
    with pytest.raises(RuntimeError, match="`second` to be float32"):
        scale(a, b.double(), one)
    with pytest.raises(ValueError, match="`first` to fill its memory"):
        scale(torch.ones(8, device=device)[::2], b, one)
    with pytest.raises(ValueError, match="`second` to fill its memory"):
        scale(a, torch.ones(1, device=device).expand(4), one)
    with pytest.raises(ValueError, match="to share no memory"):
        scale(a, a[1:], one)
    for pair in ((a, b), (b, a)):
        with pytest.raises(ValueError, match="`factor` to lie outside"):
            scale(*pair, a[1])


def test_any_order_of_axes_is_scaled(device: str) -> None:
    x = torch.arange(24.0, device=device).reshape(1, 2, 3, 4)
    first, second = x.clone().permute(2, 0, 3, 1), x.clone().transpose(1, 2)
    torch.ops.syncfree.scale_(first, second, torch.tensor(3.0, device=device))
    assert torch.equal(first, (x * 3).permute(2, 0, 3, 1))
    assert torch.equal(second, (x * 3).transpose(1, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_factors_of_any_type(dtype: torch.dtype, device: str) -> None:
    x = torch.arange(4103.0, device=device)
    first, second = x.clone(), x.clone()[1:]  # one aligned for vectors, one not
    torch.ops.syncfree.scale_(first, second, torch.tensor(-0.5, dtype=dtype, device=device))
    assert torch.equal(first, x * -0.5)
    assert torch.equal(second, x[1:] * -0.5)


def training(call: Callable[[Tensor, Tensor], Tensor], shape: tuple[int, ...]) -> None:
    a, b = image_pair(shape, torch.float32, "cuda")
    a.requires_grad_()
    one = torch.ones((), device="cuda")
    launches = count_launches(lambda: torch.autograd.grad(call(a, b), a, one))
    assert launches == _LAUNCHES[call.__name__]


# The pass, what scales by a factor that is one, and torch's arithmetic of single numbers.
_LAUNCHES = {"ssim_loss": 2 + 1, "l1_ssim_loss": 2 + 2}


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


@pytest.mark.needs_cuda
def test_compiled_losses_take_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept for backward must be a tensor that torch.compile knows of."""
    torch._dynamo.reset()
    asked: list[int] = []
    ask = _one_pass.ssim_gives_gradients
    monkeypatch.setattr(
        _one_pass, "ssim_gives_gradients", lambda *a: asked.append(len(a)) or ask(*a)
    )
    images = image_pair((1, 1, 720, 1280), torch.float32, "cuda")
    compiled = torch.compile(l1_ssim_loss, fullgraph=True, backend="aot_eager")
    got = gradients(compiled, *images)
    assert not asked
    for g, w in zip(got, gradients(l1_ssim_loss, *images), strict=True):
        torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-12)
    assert len(asked) == 1
