"""Gradients of SSIM and `image_quality` against autograd of their definitions in float64."""

from __future__ import annotations

import pytest
import torch
import torchmetrics.functional.image as tm
from torch import Tensor

from cases import LAYOUTS, SHAPES, Layout, image_pair
from gradient_reference import check, clamped, gradients, similarity, true_gradients
from ssim_reference import Window
from syncfree.functional.image import structural_similarity_index_measure

FLOATING = [torch.float64, torch.float32, torch.float16, torch.bfloat16]

WINDOWS = [
    Window(sigma=0.5),
    Window(sigma=(2.0, 0.8)),
    Window(gaussian_kernel=False, kernel_size=7),
    Window(gaussian_kernel=False, kernel_size=(3, 9)),
    Window(gaussian_kernel=False, kernel_size=1),
]

# A volume's last axis is padded by kernel_size, whatever the Gaussian: less, more and as needed.
VOLUME_WINDOWS = [
    Window(sigma=0.8, kernel_size=7),
    Window(sigma=0.8, kernel_size=11),
    Window(sigma=0.8, kernel_size=1),
    Window(sigma=(0.5, 0.8, 0.3), kernel_size=5),
    Window(gaussian_kernel=False, kernel_size=(3, 5, 7)),
]


def ssim(preds: Tensor, target: Tensor, **options: object) -> Tensor:
    return structural_similarity_index_measure(preds, target, **{"data_range": 1.0, **options})


def weight(pixels: int) -> float:
    """Brings a mean's gradient near 1, exactly in any dtype, so that halves do not underflow."""
    return 2.0 ** (pixels.bit_length() - 1)


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("shape", [*SHAPES, (1, 1, 20, 1100), (1, 2, 300, 70)], ids=str)
def test_value(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> None:
    images = image_pair(shape, dtype, device)
    scale = weight(images[0].numel())
    got = gradients(lambda a, b: ssim(a, b) * scale, *images)
    assert [g.dtype for g in got] == [dtype, dtype]
    check(got, true_gradients(lambda a, b: similarity(a, b).values.mean() * scale, *images))


@pytest.mark.parametrize("dtype", FLOATING[:2], ids=str)
@pytest.mark.parametrize("reduction", ["elementwise_mean", "sum", "none"])
def test_reductions(reduction: str, dtype: torch.dtype, device: str) -> None:
    images = image_pair((3, 2, 24, 37), dtype, device)
    per_image = torch.tensor([3.0, -1.0, 0.5], device=device, dtype=dtype)

    def reduce(values: Tensor) -> Tensor:
        if reduction == "none":
            return values @ per_image.to(values.dtype)
        return values.mean() if reduction == "elementwise_mean" else values.sum()

    def loss(a: Tensor, b: Tensor) -> Tensor:
        value = ssim(a, b, reduction=reduction)
        return reduce(value) if reduction == "none" else value

    check(
        gradients(loss, *images),
        true_gradients(lambda a, b: reduce(similarity(a, b).values), *images),
    )


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_map_and_value(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> None:
    images = image_pair(shape, dtype, device)
    upstream = torch.randn(shape, device=device).to(dtype)
    scale = weight(images[0][0].numel())

    def loss(a: Tensor, b: Tensor) -> Tensor:
        value, full = ssim(a, b, reduction="sum", return_full_image=True)
        return value.double() * scale + (full.double() * upstream.double()).sum()

    def truth(a: Tensor, b: Tensor) -> Tensor:
        s = similarity(a, b)
        return s.values.sum() * scale + (s.map * upstream.double()).sum()

    check(gradients(loss, *images), true_gradients(truth, *images))


@pytest.mark.parametrize("upstream", ["map only", "expanded", "strided"])
def test_gradients_of_a_map_in_any_layout(upstream: str, device: str) -> None:
    images = image_pair((2, 3, 16, 40), torch.float32, device)
    big = torch.rand(2, 3, 32, 40, device=device)

    def total(full: Tensor) -> Tensor:
        if upstream == "expanded":
            return full.sum()
        return (full * (big[:, :, ::2] if upstream == "strided" else big[:, :, :16])).sum()

    got = gradients(lambda a, b: total(ssim(a, b, return_full_image=True)[1]), *images)
    big = big.double()
    check(got, true_gradients(lambda a, b: total(similarity(a, b).map), *images))


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("with_value", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 16, 16), (1, 2, 33, 147), (2, 1, 11, 64)], ids=str)
def test_contrast(
    shape: tuple[int, ...], with_value: bool, dtype: torch.dtype, device: str
) -> None:
    images = image_pair(shape, dtype, device)
    scale = weight(images[0][0].numel())

    def loss(a: Tensor, b: Tensor) -> Tensor:
        value, contrast = ssim(a, b, return_contrast_sensitivity=True)
        return contrast.sum() * scale + with_value * value * scale

    def truth(a: Tensor, b: Tensor) -> Tensor:
        s = similarity(a, b)
        return s.contrast.sum() * scale + with_value * s.values.mean() * scale

    check(gradients(loss, *images), true_gradients(truth, *images))


def test_contrast_of_images_that_are_all_border(device: str) -> None:
    """The mean over no window is NaN and nothing flows through it."""
    images = image_pair((1, 1, 8, 8), torch.float32, device)
    got = gradients(lambda a, b: ssim(a, b, return_contrast_sensitivity=True)[1].sum(), *images)
    assert all((g == 0).all() for g in got)


@pytest.mark.parametrize("dtype", FLOATING[:2], ids=str)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("shape", [(2, 2, 9, 10), (1, 1, 40, 150)], ids=str)
def test_windows(shape: tuple[int, ...], window: Window, dtype: torch.dtype, device: str) -> None:
    images = image_pair(shape, dtype, device)
    upstream = torch.randn(shape, device=device, dtype=torch.float64)

    def loss(a: Tensor, b: Tensor) -> Tensor:
        return (ssim(a, b, return_full_image=True, **window.options)[1] * upstream).sum()

    check(
        gradients(loss, *images),
        true_gradients(lambda a, b: (similarity(a, b, window).map * upstream).sum(), *images),
    )


@pytest.mark.parametrize("dtype", FLOATING[:3], ids=str)
@pytest.mark.parametrize("window", VOLUME_WINDOWS, ids=str)
@pytest.mark.parametrize("shape", [(2, 2, 6, 7, 8), (1, 1, 20, 40, 70)], ids=str)
def test_volumes(shape: tuple[int, ...], window: Window, dtype: torch.dtype, device: str) -> None:
    preds, target = image_pair((shape[0], shape[1] * shape[2], *shape[3:]), dtype, device)
    images = preds.reshape(shape), target.reshape(shape)
    want = similarity(*(x.double() for x in images), window).map
    upstream = torch.randn(want.shape, device=device).to(dtype).double()

    def loss(a: Tensor, b: Tensor) -> Tensor:
        value, full = ssim(a, b, return_full_image=True, **window.options)
        return (full * upstream).sum() + value

    def truth(a: Tensor, b: Tensor) -> Tensor:
        s = similarity(a, b, window)
        return (s.map * upstream).sum() + s.values.mean()

    check(gradients(loss, *images), true_gradients(truth, *images))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_layouts_change_no_bit(layout: Layout, dtype: torch.dtype, device: str) -> None:
    a, b = image_pair((2, 3, 33, 70), dtype, device)
    want = gradients(lambda x, y: ssim(x, y) * 8192, a, b)
    got = gradients(lambda x, y: ssim(layout.apply(x), layout.apply(y)) * 8192, a, b)
    assert all(torch.equal(g, w) for g, w in zip(got, want, strict=True))


def test_an_image_shared_by_the_batch(device: str) -> None:
    preds, target = image_pair((3, 2, 20, 60), torch.float64, device)
    one = target[:1]
    got = gradients(lambda a, b: ssim(a, b.expand_as(a)), preds, one)
    check(got, gradients(lambda a, b: similarity(a, b.expand_as(a)).values.mean(), preds, one))


def test_gradient_does_not_depend_on_the_threads() -> None:
    images = image_pair((2, 3, 70, 300), torch.float32, "cpu")
    threads = torch.get_num_threads()
    want = gradients(ssim, *images)
    try:
        torch.set_num_threads(1 if threads > 1 else 2)
        got = gradients(ssim, *images)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(g, w) for g, w in zip(got, want, strict=True))


def test_gradient_has_the_layout_of_its_image(device: str) -> None:
    images = [
        x.contiguous(memory_format=torch.channels_last)
        for x in image_pair((2, 3, 16, 20), torch.float32, device)
    ]
    for gradient in gradients(ssim, *images):
        assert gradient.is_contiguous(memory_format=torch.channels_last)


def test_gradient_of_an_image_does_not_depend_on_its_batch(device: str) -> None:
    a, b = image_pair((5, 2, 40, 90), torch.float32, device)
    together = gradients(lambda x, y: ssim(x, y, reduction="none").sum(), a, b)
    for i in range(5):
        alone = gradients(
            lambda x, y: ssim(x, y, reduction="none").sum(), a[i : i + 1], b[i : i + 1]
        )
        assert all(torch.equal(t[i], s[0]) for t, s in zip(together, alone, strict=True))


@pytest.mark.parametrize("bounds", [(0.25, 0.75), (0.1, 0.8), (0.3, 0.7)], ids=str)
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("uniform", [False, True])
def test_clamping_range(
    uniform: bool, dtype: torch.dtype, bounds: tuple[float, float], device: str
) -> None:
    """Nothing flows to what was clamped; a value on the bound, as the dtype has it, was not."""
    window = Window(gaussian_kernel=not uniform, kernel_size=5)
    images = [x.to(dtype) for x in image_pair((2, 1, 20, 30), torch.float64, device)]
    for x in images:
        x[..., ::7] = bounds[0]
        x[..., 3::7] = bounds[1]
    low = torch.tensor(bounds[0], dtype=dtype).item()
    got = gradients(lambda a, b: ssim(a, b, data_range=bounds, **window.options), *images)
    want = true_gradients(
        lambda *images: similarity(
            *(clamped(x, bounds, dtype) for x in images), window, bounds[1] - bounds[0]
        ).values.mean(),
        *images,
    )
    assert (got[0][images[0] < low] == 0).all()
    assert (got[0][images[0] == low] != 0).float().mean() > 0.9
    check(got, want)


def test_range_of_the_data_counts_as_a_constant(device: str) -> None:
    images = image_pair((2, 1, 20, 30), torch.float64, device)
    found = max(x.max().item() - x.min().item() for x in images)
    want = gradients(lambda a, b: ssim(a, b, data_range=found), *images)
    check(gradients(lambda a, b: ssim(a, b, data_range=None), *images), want, 1e-13)


@pytest.mark.parametrize("data_range", [255.0, 1e-3, 1e30])
def test_any_range(data_range: float, device: str) -> None:
    images = [x * data_range for x in image_pair((1, 2, 20, 60), torch.float32, device)]
    got = gradients(lambda a, b: ssim(a, b, data_range=data_range) * 1e4, *images)
    truth = true_gradients(
        lambda a, b: similarity(a, b, data_range=data_range).values.mean() * 1e4, *images
    )
    check(got, truth)


@pytest.mark.parametrize("noise", [1e-3, 0.05])
@pytest.mark.parametrize("uniform", [False, True])
def test_keeps_digits_where_images_are_bright_and_smooth(
    uniform: bool, noise: float, device: str
) -> None:
    window = Window(gaussian_kernel=not uniform, kernel_size=7)
    generator = torch.Generator().manual_seed(3)
    base = 0.9 + 0.05 * torch.linspace(0, 1, 200).expand(1, 1, 90, 200)
    base = torch.where(torch.arange(200) < 100, base, base - 0.85)  # and behind an edge dark
    images = [
        (base + noise * torch.randn(base.shape, generator=generator)).to(device) for _ in range(2)
    ]
    got = gradients(lambda a, b: ssim(a, b, **window.options) * 1e4, *images)
    check(got, true_gradients(lambda a, b: similarity(a, b, window).values.mean() * 1e4, *images))


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize(
    "window", [Window(), Window(gaussian_kernel=False, kernel_size=7)], ids=str
)
def test_equal_images_have_none(window: Window, dtype: torch.dtype, device: str) -> None:
    a, _ = image_pair((1, 2, 40, 150), dtype, device)
    for gradient in gradients(lambda x, y: ssim(x, y, **window.options) * 4096, a, a):
        assert (gradient == 0).all()


@pytest.mark.parametrize(
    "window", [Window(), Window(gaussian_kernel=False, kernel_size=11)], ids=str
)
def test_bad_pixels_spoil_their_surroundings_only(window: Window, device: str) -> None:
    images = image_pair((1, 1, 60, 170), torch.float32, device)
    clean = gradients(lambda a, b: ssim(a, b, reduction="sum", **window.options), *images)
    images[0][0, 0, 30, 100] = torch.nan
    got = gradients(lambda a, b: ssim(a, b, reduction="sum", **window.options), *images)
    near = torch.zeros(60, 170, dtype=torch.bool, device=device)
    near[20:41, 90:111] = True
    for g, c in zip(got, clean, strict=True):
        assert g[0, 0][near].isnan().all()
        assert g[0, 0][~near].isfinite().all()
        check([g[0, 0][~near]], [c[0, 0][~near].double()], 1e-4)


@pytest.mark.parametrize("shape", [(2, 3, 40, 75), (1, 1, 8, 20, 17)], ids=str)
def test_agrees_with_torchmetrics(shape: tuple[int, ...], device: str) -> None:
    generator = torch.Generator().manual_seed(1)
    images = [torch.rand(shape, generator=generator, dtype=torch.float64).to(device) for _ in "ab"]
    sigma = 1.5 if len(shape) == 4 else 0.8
    kernel_size = 11 if len(shape) == 4 else 7

    def loss(function: object) -> object:
        return lambda a, b: function(a, b, sigma=sigma, kernel_size=kernel_size, data_range=1.0)

    ours = gradients(loss(structural_similarity_index_measure), *images)
    check(ours, gradients(loss(tm.structural_similarity_index_measure), *images))
