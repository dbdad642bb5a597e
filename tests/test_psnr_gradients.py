"""Gradients of PSNR against torch's autograd of its definition in float64."""

from __future__ import annotations

import pytest
import torch
import torchmetrics.functional.image as tm
from torch import Tensor

from cases import LAYOUTS, Layout, image_pair
from gradient_reference import check, clamped, gradients, signal_to_noise, true_gradients
from syncfree.functional.image import peak_signal_noise_ratio

FLOATING = [torch.float64, torch.float32, torch.float16, torch.bfloat16]

DIMS = [None, (), (1, 2, 3), (0,), (-1,), (1, 3), (0, 2), (0, 1, 2, 3)]

# A gradient that arrives for one result of many has that result's dtype.
UPSTREAM_TOLERANCE = {torch.float16: 2**-10, torch.bfloat16: 2**-7}


def every(dim: tuple[int, ...] | None) -> tuple[int, ...]:
    return dim or (0, 1, 2, 3)


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("reduction", ["elementwise_mean", "sum", "none"])
@pytest.mark.parametrize("dim", DIMS, ids=str)
def test_dims_and_reductions(
    dim: tuple[int, ...] | None, reduction: str, dtype: torch.dtype, device: str
) -> None:
    images = image_pair((3, 2, 9, 14), dtype, device)
    upstream = torch.randn(
        signal_to_noise(*images, 1.0, dim=every(dim)).shape, device=device, dtype=torch.float64
    )

    def loss(a: Tensor, b: Tensor) -> Tensor:
        value = peak_signal_noise_ratio(a, b, 1.0, dim=dim, reduction=reduction)
        return (value * upstream).sum() if value.shape == upstream.shape else value

    def truth(a: Tensor, b: Tensor) -> Tensor:
        values = signal_to_noise(a, b, 1.0, dim=every(dim))
        if reduction == "none" or values.ndim == 0:
            return (values * upstream).sum()
        return values.mean() if reduction == "elementwise_mean" else values.sum()

    got = gradients(loss, *images)
    assert [g.dtype for g in got] == [dtype, dtype]
    check(got, true_gradients(truth, *images), UPSTREAM_TOLERANCE.get(dtype))


@pytest.mark.parametrize("arriving", ["one for all", "with gaps", "transposed"])
@pytest.mark.parametrize("dim", [(1, 2, 3), (2, 3)], ids=str)
def test_what_arrives_may_have_any_layout(dim: tuple[int, ...], arriving: str, device: str) -> None:
    images = image_pair((3, 2, 9, 14), torch.float32, device)

    def loss(values: Tensor) -> Tensor:
        if arriving == "one for all":
            return values.sum()
        if arriving == "with gaps":
            values = torch.stack([values, values.detach()], -1)
        else:
            values = values.movedim(0, -1)
        weights = torch.arange(1, 1 + values.numel(), device=device).view_as(values)
        return (values * weights).sum()

    got = gradients(
        lambda a, b: loss(peak_signal_noise_ratio(a, b, 1.0, dim=dim, reduction="none")), *images
    )
    check(got, true_gradients(lambda a, b: loss(signal_to_noise(a, b, 1.0, dim=dim)), *images))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", FLOATING[1:3], ids=str)
def test_layouts_change_no_bit(layout: Layout, dtype: torch.dtype, device: str) -> None:
    a, b = image_pair((2, 3, 33, 70), dtype, device)
    for dim in (None, (1, 2, 3)):
        want = gradients(lambda x, y, d=dim: peak_signal_noise_ratio(x, y, 1.0, dim=d), a, b)
        got = gradients(
            lambda x, y, d=dim: peak_signal_noise_ratio(
                layout.apply(x), layout.apply(y), 1.0, dim=d
            ),
            a,
            b,
        )
        assert all(torch.equal(g, w) for g, w in zip(got, want, strict=True))


@pytest.mark.parametrize("target", [torch.int32, torch.int64], ids=str)
def test_large_integers(target: torch.dtype, device: str) -> None:
    """Float32 knows no neighbours of 2^25, between which the errors are."""
    a = torch.full((3, 50), 2.0**25, device=device)
    b = a.to(target) + torch.arange(-75, 75, device=device).view(3, 50).to(target)
    (got,) = gradients(lambda x: peak_signal_noise_ratio(x, b, 2.0**26), a)
    check([got], true_gradients(lambda x: signal_to_noise(x, b.double(), 2.0**26), a))


@pytest.mark.parametrize("shape", [(), (1,), (70_000,), (3, 40_000), (2,) * 12], ids=str)
def test_any_number_of_dimensions(shape: tuple[int, ...], device: str) -> None:
    generator = torch.Generator().manual_seed(2)
    images = [torch.rand(shape, generator=generator).to(device) for _ in "ab"]
    dims = tuple(range(0, len(shape), 2))
    for dim in {None, dims}:
        got = gradients(lambda a, b, d=dim: peak_signal_noise_ratio(a, b, 2.0, dim=d), *images)
        over = dim or tuple(range(len(shape)))
        check(
            got,
            true_gradients(lambda a, b, d=over: signal_to_noise(a, b, 2.0, dim=d).mean(), *images),
        )


def test_twelve_mixed_dimensions(device: str) -> None:
    generator = torch.Generator().manual_seed(2)
    a, b = (torch.rand((2,) * 12, generator=generator).to(device) for _ in "ab")
    order = (3, 0, 7, 1, 11, 2, 9, 4, 5, 10, 6, 8)
    dim = (0, 3, 4, 7, 10)
    got = gradients(
        lambda x, y: peak_signal_noise_ratio(x.permute(order), y, 1.0, dim=dim, reduction="sum"),
        a,
        b,
    )
    want = true_gradients(
        lambda x, y: signal_to_noise(x.permute(order), y, 1.0, dim=dim).sum(), a, b
    )
    check(got, want)


@pytest.mark.parametrize("bounds", [(0.25, 0.75), (0.1, 0.8), (0.3, 0.7)], ids=str)
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_clamping_range(dtype: torch.dtype, bounds: tuple[float, float], device: str) -> None:
    """Nothing flows to what was clamped; a value on the bound, as the dtype has it, was not."""
    images = [x.to(dtype) for x in image_pair((2, 1, 20, 30), torch.float64, device)]
    for x in images:
        x[..., ::7] = bounds[0]
        x[..., 3::7] = bounds[1]
    high = torch.tensor(bounds[1], dtype=dtype).item()
    got = gradients(lambda a, b: peak_signal_noise_ratio(a, b, bounds), *images)
    assert (got[0][images[0] > high] == 0).all()
    assert (got[0][(images[0] == high) & (images[1] < high)] != 0).all()
    want = true_gradients(
        lambda *images: signal_to_noise(*(clamped(x, bounds, dtype) for x in images), 1.0), *images
    )
    check(got, want)


@pytest.mark.parametrize("base", [2.0, 0.5])
def test_base(base: float, device: str) -> None:
    images = image_pair((2, 1, 9, 7), torch.float64, device)
    got = gradients(lambda a, b: peak_signal_noise_ratio(a, b, 1.0, base=base), *images)
    check(got, true_gradients(lambda a, b: signal_to_noise(a, b, 1.0, base), *images))


def test_identical_images_have_none(device: str) -> None:
    """Where TorchMetrics gives NaN. The other image of the batch keeps its own."""
    a, b = image_pair((2, 1, 9, 7), torch.float32, device)
    b[0] = a[0]
    got = gradients(
        lambda x, y: peak_signal_noise_ratio(x, y, 1.0, dim=(1, 2, 3), reduction="none")[1], a, b
    )
    for gradient in got:
        assert (gradient[0] == 0).all()
        assert (gradient[1] != 0).any()
        assert gradient.isfinite().all()


def test_nan_spoils_its_own_image(device: str) -> None:
    a, b = image_pair((2, 1, 9, 7), torch.float32, device)
    a[0, 0, 3, 3] = torch.nan
    for gradient in gradients(
        lambda x, y: peak_signal_noise_ratio(x, y, 1.0, dim=(1, 2, 3), reduction="sum"), a, b
    ):
        assert gradient[0].isnan().all()
        assert gradient[1].isfinite().all()


def test_agrees_with_torchmetrics(device: str) -> None:
    images = image_pair((3, 2, 9, 14), torch.float64, device)
    for options in ({}, {"dim": (1, 2, 3), "reduction": "sum"}, {"base": 2.0}):
        ours = gradients(lambda a, b, o=options: peak_signal_noise_ratio(a, b, 1.0, **o), *images)
        theirs = gradients(
            lambda a, b, o=options: tm.peak_signal_noise_ratio(a, b, 1.0, **o), *images
        )
        check(ours, theirs, 1e-6)  # TorchMetrics takes its constants in float32


def test_more_dimensions_than_a_walk_has(device: str) -> None:
    """Of which all but 63 have one element."""
    a, b = torch.rand(2, 3, 4, device=device)
    shapes = [3, *[1] * 70, 4], [3, 4]
    many, few = (
        gradients(lambda x, y: peak_signal_noise_ratio(x, y, 1.0, dim=0), a.view(s), b.view(s))
        for s in shapes
    )
    for x, y in zip(many, few, strict=True):
        torch.testing.assert_close(x.view(3, 4), y)
