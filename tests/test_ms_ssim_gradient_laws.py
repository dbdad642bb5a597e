"""What the gradient of multi-scale SSIM promises besides its numbers: bits, NaN, memory, errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cases import LAYOUTS, Layout, image_pair
from gradient_reference import check, gradients, multiscale, true_gradients
from requested_memory import most_requested, requested
from ssim_reference import Window
from syncfree._ops.ms_ssim import NORMALIZE
from syncfree.functional.image import (
    multiscale_structural_similarity_index_measure,
    structural_similarity_index_measure,
)

FLOATING = [torch.float64, torch.float32, torch.float16, torch.bfloat16]

TWO, THREE = (0.4, 0.6), (0.2, 0.3, 0.5)
SCALES = 5  # of the default

# One for each path that a problem may take.
PATHS = [Window(), Window(sigma=1.2), Window(False, kernel_size=5)]

every_path = pytest.mark.parametrize("window", PATHS, ids=str)


def ms_ssim(preds: Tensor, target: Tensor, **options: object) -> Tensor:
    return multiscale_structural_similarity_index_measure(
        preds, target, **{"data_range": 1.0, **options}
    )


@every_path
def test_one_scale_is_ssim(window: Window, device: str) -> None:
    images = image_pair((3, 2, 40, 51), torch.float32, device)

    def loss(function: Callable[..., Tensor], **options: object) -> Callable[..., Tensor]:
        return lambda a, b: function(
            a, b, data_range=1.0, reduction="none", **window.options, **options
        ).sum()

    got = gradients(loss(ms_ssim, betas=(1.0,)), *images)
    want = gradients(loss(structural_similarity_index_measure), *images)
    assert all(torch.equal(g, w) for g, w in zip(got, want, strict=True))


@every_path
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_layouts_change_no_bit(
    layout: Layout, dtype: torch.dtype, window: Window, device: str
) -> None:
    options = {"betas": THREE, **window.options}
    a, b = image_pair((2, 3, 49, 70), dtype, device)
    want = gradients(lambda x, y: ms_ssim(x, y, **options) * 8192, a, b)
    got = gradients(lambda x, y: ms_ssim(layout.apply(x), layout.apply(y), **options) * 8192, a, b)
    assert all(torch.equal(g, w) for g, w in zip(got, want, strict=True))


def test_gradient_has_the_layout_of_its_image(device: str) -> None:
    images = [
        x.contiguous(memory_format=torch.channels_last)
        for x in image_pair((2, 3, 48, 50), torch.float32, device)
    ]
    for gradient in gradients(lambda a, b: ms_ssim(a, b, betas=THREE), *images):
        assert gradient.is_contiguous(memory_format=torch.channels_last)


def test_an_image_shared_by_the_batch(device: str) -> None:
    preds, target = image_pair((3, 2, 44, 60), torch.float64, device)
    one = target[:1]
    got = gradients(lambda a, b: ms_ssim(a, b.expand_as(a), betas=THREE), preds, one)
    check(got, gradients(lambda a, b: multiscale(a, b.expand_as(a), THREE).mean(), preds, one))


@every_path
def test_gradient_of_an_image_does_not_depend_on_its_batch(window: Window, device: str) -> None:
    options = {"betas": THREE, "reduction": "none", **window.options}
    a, b = image_pair((5, 2, 47, 90), torch.float32, device)
    together = gradients(lambda x, y: ms_ssim(x, y, **options).sum(), a, b)
    for i in range(5):
        alone = gradients(lambda x, y: ms_ssim(x, y, **options).sum(), a[i : i + 1], b[i : i + 1])
        assert all(torch.equal(t[i], s[0]) for t, s in zip(together, alone, strict=True))


def test_gradient_does_not_depend_on_the_threads() -> None:
    images = image_pair((2, 3, 180, 300), torch.float32, "cpu")
    threads = torch.get_num_threads()
    want = gradients(ms_ssim, *images)
    try:
        torch.set_num_threads(1 if threads > 1 else 2)
        got = gradients(ms_ssim, *images)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(g, w) for g, w in zip(got, want, strict=True))


@every_path
def test_negative_means(window: Window, device: str) -> None:
    """Cut off by relu they pass nothing back, without an infinity on the way; as powers they are
    NaN."""
    preds, target = image_pair((2, 1, 50, 60), torch.float64, device)
    target[1] = 1 - preds[1]
    options = {"betas": THREE, "reduction": "none", **window.options}

    def loss(normalize: str | None) -> Callable[..., Tensor]:
        return lambda a, b: ms_ssim(a, b, normalize=normalize, **options).sum()

    def truth(a: Tensor, b: Tensor) -> Tensor:
        return multiscale(a, b, THREE, window, normalize="simple").sum()

    check(gradients(loss("simple"), preds, target), true_gradients(truth, preds, target))
    want = gradients(loss("simple"), preds, target)
    assert all((w[1] != 0).any() for w in want)
    alone = gradients(loss("relu"), preds[:1], target[:1])
    for g, w in zip(gradients(loss("relu"), preds, target), alone, strict=True):
        assert torch.equal(g[:1], w)
        assert (g[1] == 0).all()
    for g, w in zip(gradients(loss(None), preds, target), alone, strict=True):
        assert torch.equal(g[:1], w)
        assert g[1].isnan().all()


@pytest.mark.parametrize(
    ("betas", "normalize", "flows"),
    [
        (TWO, "relu", False),
        (TWO, None, False),  # where the slope is infinite
        ((1.0, 0.6), "relu", False),
        ((1.0, 0.6), None, True),
        ((0.0, 0.6), "relu", True),
        (TWO, "simple", True),
    ],
    ids=str,
)
def test_a_mean_of_zero_passes_no_infinity(
    betas: tuple[float, ...], normalize: str | None, flows: bool, device: str
) -> None:
    images = image_pair((1, 1, 30, 33), torch.float32, device)
    options = (True, [1.5], [11], 1.0, None, 0.01, 0.03, list(betas), NORMALIZE[normalize], 1)
    ops = torch.ops.syncfree
    value, means, *pyramids = ops.multiscale_ssim_with_scales.default(*images, *options)
    means[0] = 0
    kept = means, *pyramids, torch.ones_like(value)
    for g in ops.multiscale_ssim_backward.default(*images, *kept, True, True, *options):
        assert g.isfinite().all()
        assert bool((g != 0).any()) == flows


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@every_path
def test_equal_images_have_none(window: Window, dtype: torch.dtype, device: str) -> None:
    a, _ = image_pair((1, 2, 47, 150), dtype, device)
    options = {"betas": THREE, **window.options}
    for gradient in gradients(lambda x, y: ms_ssim(x, y, **options) * 4096, a, a):
        assert (gradient == 0).all()


@every_path
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_bad_pixels_spoil_their_image_only(bad: float, window: Window, device: str) -> None:
    images = image_pair((3, 1, 60, 77), torch.float32, device)
    options = {"betas": THREE, "reduction": "none", **window.options}
    clean = gradients(lambda a, b: ms_ssim(a, b, **options).sum(), *images)
    images[0][1, 0, 30, 40] = bad
    got = gradients(lambda a, b: ms_ssim(a, b, **options).sum(), *images)
    for g, c in zip(got, clean, strict=True):
        assert g[1].isnan().all()
        assert torch.equal(g[::2], c[::2])


@pytest.mark.parametrize(
    ("dtype", "shape", "betas"),
    [
        (torch.float32, (2, 3, 51, 46), THREE),
        (torch.float64, (1, 2, 30, 31), TWO),
        (torch.float16, (2, 1, 8, 29, 30), TWO),
        (torch.float32, (2, 1, 20, 20), (1.0,)),
    ],
    ids=str,
)
def test_ops_pass_opcheck(
    dtype: torch.dtype, shape: tuple[int, ...], betas: tuple[float, ...], device: str
) -> None:
    images = [x.transpose(-1, -2) for x in torch.rand(2, *shape).to(device, dtype)]
    forward = torch.ops.syncfree.multiscale_ssim_with_scales.default
    backward = torch.ops.syncfree.multiscale_ssim_backward.default
    for reduction in (0, 1):
        options = (True, [0.7], [5], 1.0, None, 0.01, 0.03, list(betas), 1, reduction)
        torch.library.opcheck(forward, (*images, *options))
        value, *scales = forward(*images, *options)
        for needs in ((True, True), (True, False), (False, True)):
            given = *scales, torch.ones_like(value), *needs, *options
            torch.library.opcheck(backward, (*images, *given))


def test_op_refuses_what_does_not_fit(device: str) -> None:
    a, b = image_pair((2, 1, 30, 33), torch.float32, device)
    options = (True, [1.5], [11], 1.0, None, 0.01, 0.03, list(TWO), 1, 1)
    forward = torch.ops.syncfree.multiscale_ssim_with_scales.default
    backward = torch.ops.syncfree.multiscale_ssim_backward.default
    value, *kept = forward(a, b, *options)
    means, pyramid, _ = kept
    with pytest.raises(RuntimeError, match="`grad_value` to have the shape"):
        backward(a, b, *kept, torch.ones(2, device=device), True, True, *options)
    with pytest.raises(RuntimeError, match="`grad_value` to be of a floating dtype"):
        backward(a, b, *kept, value.long(), True, True, *options)
    with pytest.raises(RuntimeError, match="has no gradient"):
        backward(a.byte(), b, *kept, value, True, True, *options)
    for wrong in (means.float(), means[:1], means.T.contiguous().T):
        with pytest.raises(RuntimeError, match="`means` as `multiscale_ssim_with_scales` gave it"):
            backward(a, b, wrong, pyramid, pyramid, value, True, True, *options)
    for wrong in (pyramid.double(), pyramid[1:], pyramid[None]):
        with pytest.raises(RuntimeError, match="`preds_pyramid` as `multiscale_ssim_with_scales`"):
            backward(a, b, means, wrong, pyramid, value, True, True, *options)
        with pytest.raises(RuntimeError, match="`target_pyramid` as `multiscale_ssim_with_scales`"):
            backward(a, b, means, pyramid, wrong, value, True, True, *options)


@pytest.mark.needs_cuda
def test_launches_one_kernel_a_scale_and_one_for_the_means() -> None:
    a, b = image_pair((2, 3, 200, 264), torch.float32, "cuda")
    one = torch.ones((), device="cuda")
    a.requires_grad_()
    torch.autograd.grad(ms_ssim(a, b), a, one)
    value = ms_ssim(a, b)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        torch.autograd.grad(value, a, one)
        torch.cuda.synchronize()
    on_device = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    assert len(on_device) == SCALES + 1


@pytest.mark.needs_cuda
@pytest.mark.parametrize("both", [False, True])
def test_memory_is_that_of_the_pooled_images(both: bool) -> None:
    """Of both images between the passes, and in the backward pass of their gradients too."""
    a, b = image_pair((4, 3, 720, 1280), torch.float32, "cuda")
    a.requires_grad_()
    b.requires_grad_(both)
    wanted = (a, b) if both else (a,)
    one = torch.ones((), device="cuda")
    torch.autograd.grad(ms_ssim(a, b), wanted, one)
    torch.cuda.synchronize()
    before = requested()
    value = ms_ssim(a, b)
    assert requested() - before <= 2 * a.nbytes / 3 + 2**20
    torch.cuda.reset_peak_memory_stats()
    gradients = torch.autograd.grad(value, wanted, one)
    extra = most_requested() - before
    assert extra <= 2 * a.nbytes / 3 + len(gradients) * a.nbytes * 4 / 3 + 2**20
