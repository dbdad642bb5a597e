"""Losses of images that are not small, whose gradients CUDA finds in the pass for their value."""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from cases import image_pair
from gradient_reference import gradients, similarity
from syncfree.losses._ssim_node import SsimLoss
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
    elif "CUDA_ON_CPU" in os.environ:
        memory = int(os.environ.get("CUDA_ON_CPU_SHARED_MEMORY", "227")) << 10
    else:
        return False
    return bool(memory >= 127 << 10)  # of two blocks of a multiprocessor, each with a KiB besides


def loss(weight: float) -> Callable[[Tensor, Tensor], Tensor]:
    """As `ssim_loss` and `l1_ssim_loss` call it for large images on CUDA."""
    return lambda a, b: SsimLoss.quick(a, b, weight, True, OPTIONS)


either_way = pytest.mark.usefixtures("either_way")


def truth(preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    value = similarity(preds.double(), target.double()).values.mean()
    return value, (preds.double() - target.double()).abs().mean()


def by_rings(image: Tensor) -> bool:
    """Whether rows wait in shared memory, of which three quarters of a warp's columns are used."""
    if image.is_cuda and torch.cuda.get_device_capability()[0] not in (9, 10):
        return False
    height, width = image.shape[2:]
    strips = math.ceil((width - 16) / 112)
    return bool(min(height, width) >= 192 and 4 * width >= 3 * 128 * strips)


def check_op(images: list[Tensor], weight: float, needs: tuple[bool, bool] = (True, True)) -> None:
    """The loss is true, and gradients are as the pass for them alone gives them.

    With the same bits where both take one kernel: where images are large, or strips well filled.
    """
    value, *got = together(*images, weight, *needs, *OPTIONS)
    similarity, error = truth(*images)
    assert value.dtype == torch.float32
    assert abs(value - (weight * (1 - similarity) + (1 - weight) * error)) <= 2e-7
    device = images[0].device
    by_value = torch.tensor(-weight, device=device, dtype=torch.float64)
    share = torch.tensor((1 - weight) / images[0].numel(), device=device, dtype=torch.float64)
    by_error = None if weight == 1 else share.expand(images[0].shape[:1])
    arrived = by_value, None, None, None, by_error
    want = gradients_alone(*images, *arrived, *needs, *OPTIONS)
    for g, w, need in zip(got, want, needs, strict=True):
        assert g.numel() == (images[0].numel() if need else 0)
        if min(images[0].shape[2:]) >= 720 or not need or by_rings(images[0]):
            assert torch.equal(g, w)
        else:
            assert (g - w).abs().max() <= 1e-6 * w.abs().max()


@pytest.mark.parametrize("weight", [1.0, 0.2])
# Widths of one strip and of several, and fewer rows than there are blocks for. 256, 260 and 372
# would leave more than a quarter of a warp's strips empty, and go by blocks of warps.
@pytest.mark.parametrize(
    "shape",
    [
        (1, 1, 224, 224),
        (2, 3, 227, 228),
        (3, 1, 229, 256),
        (1, 2, 300, 260),
        (2, 1, 231, 372),
        (1, 1, 224, 1000),
    ],
    ids=str,
)
def test_crops(shape: tuple[int, ...], weight: float, device: str, one_pass: bool) -> None:
    images = list(image_pair(shape, torch.float32, device))
    assert gives_gradients(*images, *OPTIONS) == one_pass
    check_op(images, weight)


@pytest.mark.parametrize("shape", [(1, 1, 192, 192), (2, 2, 203, 232), (1, 1, 195, 288)], ids=str)
def test_small_crops(shape: tuple[int, ...], device: str, one_pass: bool) -> None:
    """Where rows wait in shared memory: two columns of strips, and three."""
    images = list(image_pair(shape, torch.float32, device))
    rings = device != "cuda" or torch.cuda.get_device_capability()[0] in (9, 10)
    assert gives_gradients(*images, *OPTIONS) == (one_pass and rings)
    check_op(images, 0.2)


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
    error, *_ = together(a, b, 0.0, True, True, *with_range(top))
    want = (a.double() - b.double()).abs().mean()
    assert abs(error - want) <= 3e-7 * want


def test_small_errors_in_half_the_range_of_half_precision(device: str) -> None:
    """Which were once rounded to 2^-25 of the range: 2.3 % of these."""
    _, b = image_pair((1, 1, 720, 1280), torch.float32, device)
    a = b + 1e-3
    error, *_ = together(a, b, 0.0, True, True, *with_range(65504.0))
    want = (a.double() - b.double()).abs().mean()
    assert abs(error - want) <= 3e-7 * want


@pytest.mark.parametrize("data_range", [0.0, torch.nan, torch.inf, -1.0, 1e-310, 1e-31, 1e31])
def test_ranges_that_no_pixel_has_take_two_passes(data_range: float, device: str) -> None:
    images = image_pair((1, 1, 720, 1280), torch.float32, device)
    options = with_range(data_range)
    assert not gives_gradients(*images, *options)
    value, *_ = together(*images, 1.0, True, True, *options)
    want = 1 - torch.ops.syncfree.ssim.default(*images, *options)
    torch.testing.assert_close(value, want, rtol=0, atol=0, equal_nan=True)


def test_who_gets_gradients_with_the_value(device: str, one_pass: bool) -> None:
    a, b = image_pair((1, 3, 720, 1280), torch.float32, device)
    assert gives_gradients(a, b, *OPTIONS) == one_pass
    for rows, columns in ((191, 1280), (720, 188), (720, 222), (223, 256)):
        small = [x[..., :rows, :columns] for x in (a, b)]
        assert not gives_gradients(*small, *OPTIONS)
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
        together(a, b, 0.2, True, True, *OPTIONS[:-2], 2)


def test_the_same_bits_each_time(device: str) -> None:
    images = image_pair((2, 3, 720, 1280), torch.float32, device)
    arguments = (*images, 0.2, True, True, *OPTIONS)
    first = together(*arguments)
    for _ in range(3):
        assert all(torch.equal(x, y) for x, y in zip(together(*arguments), first, strict=True))


def test_a_bad_pixel_spoils_the_value(device: str) -> None:
    images = image_pair((1, 1, 720, 1280), torch.float32, device)
    for weight in (1.0, 0.2, 0.0):
        arguments = (weight, True, True, *OPTIONS)
        images[0][0, 0, 300, 427] = torch.nan
        value, *_ = together(*images, *arguments)
        assert value.isnan()
        images[0][0, 0, 300, 427] = 0.5
        value, *_ = together(*images, *arguments)  # nothing of it is left
        assert value.isfinite()


@either_way
@pytest.mark.parametrize("weight", [1.0, 0.2])
def test_what_arrives_scales_the_gradients(weight: float, device: str) -> None:
    images = image_pair((1, 1, 720, 1280), torch.float32, device)
    one = gradients(loss(weight), *images)
    for factor in (4.0, -0.37, 2.0**16):
        got = gradients(lambda a, b, f=factor: loss(weight)(a, b) * f, *images)
        for g, w in zip(got, one, strict=True):
            torch.testing.assert_close(g, w * factor, rtol=1e-7, atol=0)


@either_way
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


@either_way
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


@either_way
def test_a_second_derivative_is_refused(device: str) -> None:
    leaves = [x.requires_grad_() for x in image_pair((1, 1, 720, 1280), torch.float32, device)]
    first = torch.autograd.grad(loss(0.2)(*leaves), leaves, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        first[0].sum().backward()


@either_way
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


@either_way
def test_changed_images_are_noticed(device: str) -> None:
    a, b = (x.requires_grad_() for x in image_pair((1, 1, 720, 1280), torch.float32, device))
    value = loss(0.2)(a, b)
    with torch.no_grad():
        a += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


@either_way
@pytest.mark.parametrize("weight", [0.2, 1.0])
def test_an_empty_batch_twice(weight: float, device: str) -> None:
    images = [torch.empty(0, 3, 256, 256, device=device, requires_grad=True) for _ in "ab"]
    value = loss(weight)(*images)
    for _ in range(2):
        first, second = torch.autograd.grad(value, images, retain_graph=True)
        assert first.shape == second.shape == images[0].shape
