"""Losses of whole video frames, whose gradients CUDA finds in the pass that finds their value."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cases import image_pair
from gradient_reference import gradients, similarity
from syncfree._ops.ssim_with_gradients import SsimLoss
from test_gradients_of_frames import smooth

WINDOW = (True, [1.5], [11])
CONSTANTS = (0.01, 0.03)
OPTIONS = (*WINDOW, 1.0, None, *CONSTANTS, 1, False)

together = torch.ops.syncfree.ssim_with_gradients.default
gradients_alone = torch.ops.syncfree.ssim_backward.default


def loss(weight: float) -> Callable[[Tensor, Tensor], Tensor]:
    """Weighted as in `l1_ssim_loss`."""
    return lambda a, b: SsimLoss.apply(a, b, weight, OPTIONS)


def truth(preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    value = similarity(preds.double(), target.double()).values.mean()
    return value, (preds.double() - target.double()).abs().mean()


def check_op(images: list[Tensor], weight: float, needs: tuple[bool, bool] = (True, True)) -> None:
    """The values are true, and gradients have the bits that the pass for them alone gives."""
    value, error, *got = together(*images, -weight, 1 - weight, *needs, *WINDOW, 1.0, *CONSTANTS)
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
        assert torch.equal(g, w)


@pytest.mark.parametrize("weight", [1.0, 0.2, 0.0])
# Units of eight rows and strips of columns: whole, cut, and one too narrow for the last warps.
@pytest.mark.parametrize(
    "shape", [(1, 1, 720, 1280), (1, 2, 723, 1284), (2, 1, 725, 1540), (1, 1, 726, 6268)], ids=str
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


def test_the_range_scales_errors(device: str) -> None:
    """Sums of errors are kept in units of the range, whatever that is."""
    a, b = image_pair((1, 1, 720, 1280), torch.float32, device)
    for top in (1e-6, 255.0, 1e9):
        _, error, _, _ = together(
            *(a * top, b * top, -0.2, 0.8, True, True), *WINDOW, top, *CONSTANTS
        )
        want = (a.double() - b.double()).abs().mean() * top
        assert abs(error - want) <= 3e-7 * want


def test_the_same_bits_each_time(device: str) -> None:
    images = image_pair((2, 3, 720, 1280), torch.float32, device)
    arguments = (*images, -0.2, 0.8, True, True, *WINDOW, 1.0, *CONSTANTS)
    first = together(*arguments)
    for _ in range(3):
        assert all(torch.equal(x, y) for x, y in zip(together(*arguments), first, strict=True))


def test_a_bad_pixel_spoils_the_value(device: str) -> None:
    images = image_pair((1, 1, 720, 1280), torch.float32, device)
    arguments = (-0.2, 0.8, True, True, *WINDOW, 1.0, *CONSTANTS)
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


def test_a_second_derivative_is_refused(device: str) -> None:
    leaves = [x.requires_grad_() for x in image_pair((1, 1, 720, 1280), torch.float32, device)]
    first = torch.autograd.grad(loss(0.2)(*leaves), leaves, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        first[0].sum().backward()


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
    with pytest.raises(RuntimeError, match="`second` to be float32"):
        scale(a, b.double(), torch.ones((), device=device))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_factors_of_any_type(dtype: torch.dtype, device: str) -> None:
    x = torch.arange(4103.0, device=device)
    first, second = x.clone(), x.clone()[1:]  # one aligned for vectors, one not
    torch.ops.syncfree.scale_(first, second, torch.tensor(-0.5, dtype=dtype, device=device))
    assert torch.equal(first, x * -0.5)
    assert torch.equal(second, x[1:] * -0.5)
