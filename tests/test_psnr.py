"""PSNR against NumPy in float64 and TorchMetrics."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import skimage.metrics
import torch
import torchmetrics.functional.image as tm
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cases import DTYPES, LAYOUTS, SHAPES, Layout, image_pair, range_of
from drawing import examples
from instruction_sets import every_lower_set, passes_with
from syncfree.functional import peak_signal_noise_ratio

# One rounding to the result's dtype, and the float32 sums below it.
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 1e-6,
    torch.float16: 1e-3,
    torch.bfloat16: 8e-3,
}


def reference(
    preds: Tensor,
    target: Tensor,
    data_range: float | tuple[float, float],
    base: float = 10.0,
    dim: tuple[int, ...] | None = None,
) -> np.ndarray:
    a, b = (t.detach().cpu().double().numpy() for t in (preds, target))
    if isinstance(data_range, tuple):
        a, b = a.clip(*data_range), b.clip(*data_range)
        data_range = data_range[1] - data_range[0]
    mse = np.mean((a - b) ** 2, axis=dim)
    with np.errstate(divide="ignore"):
        return np.asarray(10 * np.log(data_range**2 / mse) / np.log(base))


def check(got: Tensor, want: np.ndarray) -> None:
    assert got.shape == want.shape
    np.testing.assert_allclose(got.double().cpu().numpy(), want, rtol=TOLERANCE[got.dtype])


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), *SHAPES], ids=str)
def test_matches_float64(
    shape: tuple[int, ...], dtype: torch.dtype, layout: Layout, device: str
) -> None:
    preds, target = image_pair(shape, dtype, device)
    target = target.roll(1, -1) if shape == (1, 1, 1, 1) else target
    got = peak_signal_noise_ratio(layout.apply(preds), target, range_of(dtype))
    check(got, reference(preds, target, range_of(dtype)))
    assert got.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert got.device.type == device


@pytest.mark.parametrize("dim", [0, -1, 1, (1, 2, 3), (0, 2), (2, 3), (-3,), (), []], ids=str)
@pytest.mark.parametrize("reduction", ["elementwise_mean", "sum", "none", None])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dim_and_reduction(
    dim: object, reduction: str | None, dtype: torch.dtype, device: str
) -> None:
    preds, target = image_pair((4, 3, 17, 29), dtype, device)
    got = peak_signal_noise_ratio(preds, target, range_of(dtype), reduction=reduction, dim=dim)
    axes = dim if isinstance(dim, int) else tuple(dim) or None
    want = reference(preds, target, range_of(dtype), dim=axes)
    if reduction == "sum":
        want = np.asarray(want.sum())
    elif reduction == "elementwise_mean":
        want = np.asarray(want.mean())
    check(got, want)
    theirs = tm.peak_signal_noise_ratio(
        preds, target, range_of(dtype), reduction=reduction, dim=dim
    )
    assert got.shape == theirs.shape
    assert got.dtype == theirs.dtype


@pytest.mark.parametrize("data_range", [1.0, 3, (0.2, 0.7), (-1, 1)], ids=str)
@pytest.mark.parametrize("base", [10.0, 2.0, 2.718281828, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_range_and_base(data_range: object, base: float, dtype: torch.dtype, device: str) -> None:
    preds, target = image_pair((2, 3, 40, 50), dtype, device)
    got = peak_signal_noise_ratio(preds, target, data_range, base=base)
    check(got, reference(preds, target, data_range, base))


def test_bytes_clamped_and_not(device: str) -> None:
    preds, target = image_pair((2, 3, 200, 100), torch.uint8, device)
    check(peak_signal_noise_ratio(preds, target, 255), reference(preds, target, 255))
    check(peak_signal_noise_ratio(preds, target, (16, 235)), reference(preds, target, (16, 235)))


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int8, torch.int16, torch.int32, torch.int64], ids=str
)
def test_integers(dtype: torch.dtype, device: str) -> None:
    preds = torch.randint(0, 2 if dtype == torch.bool else 100, (3, 50), device=device).to(dtype)
    target = preds.roll(1)
    got = peak_signal_noise_ratio(preds, target, 100.0)
    check(got, reference(preds, target, 100.0))


@pytest.mark.parametrize("second", [torch.int32, torch.int64, torch.uint8, torch.float32], ids=str)
@pytest.mark.parametrize("first", [torch.int32, torch.int64], ids=str)
def test_large_integers(first: torch.dtype, second: torch.dtype, device: str) -> None:
    """Float32, as which they were compared, knows no neighbours of 2^24 and beyond."""
    target = torch.randint(0, 2**30, (2, 3, 90), device=device, dtype=torch.int64).to(second)
    preds = target.to(first) + 1
    for a, b in ((preds, target), (preds[..., ::2], target[..., ::2]), (preds.mT, target.mT)):
        check(peak_signal_noise_ratio(a, b, 2.0**31), reference(a, b, 2.0**31))
        values = peak_signal_noise_ratio(a, b, 2.0**31, dim=(1, 2), reduction="none")
        check(values, reference(a, b, 2.0**31, dim=(1, 2)))


@pytest.mark.parametrize("first", DTYPES, ids=str)
@pytest.mark.parametrize("second", DTYPES, ids=str)
def test_mixed_dtypes(first: torch.dtype, second: torch.dtype, device: str) -> None:
    preds = image_pair((2, 3, 31, 45), first, device)[0]
    target = image_pair((2, 3, 31, 45), second, device)[1]
    got = peak_signal_noise_ratio(preds, target, 1.0, dim=(1, 2, 3), reduction="none")
    check(got, reference(preds, target, 1.0, dim=(1, 2, 3)))


@pytest.mark.parametrize("second", [*DTYPES, torch.int8, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("first", [*DTYPES, torch.int16, torch.int32], ids=str)
def test_long_rows_of_mixed_dtypes(first: torch.dtype, second: torch.dtype, device: str) -> None:
    """One behind the other, in rows that lie apart, and with elements that do."""
    preds, target = torch.rand(2, 3, 5003) * 100
    preds, target = preds.to(first).to(device), target.to(second).to(device)
    for a, b in (
        (preds, target),
        (preds[:, :4997], target[:, :4997]),
        (preds[:, ::2], target[:, ::2]),
    ):
        check(peak_signal_noise_ratio(a, b, 255.0), reference(a, b, 255.0))


def test_matches_scikit_image(device: str) -> None:
    preds, target = image_pair((1, 3, 120, 80), torch.float64, device)
    want = skimage.metrics.peak_signal_noise_ratio(
        target.cpu().numpy(), preds.cpu().numpy(), data_range=1.0
    )
    got = peak_signal_noise_ratio(preds, target, 1.0)
    assert got.item() == pytest.approx(want, rel=1e-12)


def test_half_sums_do_not_overflow(device: str) -> None:
    """TorchMetrics sums half tensors in half: 110,592 squares of about 1 are inf there."""
    preds = torch.ones(2, 3, 192, 192, dtype=torch.float16, device=device)
    target = torch.zeros_like(preds)
    assert peak_signal_noise_ratio(preds, target, 1.0).item() == pytest.approx(0.0, abs=1e-6)


def test_identical_is_infinite_and_nan_propagates(device: str) -> None:
    x = torch.rand(2, 3, 20, 20, device=device)
    assert peak_signal_noise_ratio(x, x, 1.0).item() == math.inf
    y = x.clone()
    y[1, 2, 3, 4] = math.nan
    for data_range in (1.0, (0.0, 1.0)):
        per_image = peak_signal_noise_ratio(y, x, data_range, dim=(1, 2, 3), reduction="none")
        assert per_image.isnan().tolist() == [False, True]


def test_no_elements_give_nan(device: str) -> None:
    x = torch.rand(0, 3, 8, 8, device=device)
    assert peak_signal_noise_ratio(x, x, 1.0).isnan()
    assert peak_signal_noise_ratio(x, x, 1.0, dim=(1, 2, 3), reduction="none").shape == (0,)


def test_one_dimension_and_none(device: str) -> None:
    a, b = torch.rand(1000, device=device), torch.rand(1000, device=device)
    check(peak_signal_noise_ratio(a, b, 1.0), reference(a, b, 1.0))
    check(peak_signal_noise_ratio(a[0], b[0], 1.0), reference(a[0], b[0], 1.0))


def test_a_reduction_without_dim_changes_nothing(device: str) -> None:
    a, b = torch.rand(2, 3, device=device), torch.rand(2, 3, device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = [peak_signal_noise_ratio(a, b, 1.0, reduction=r) for r in ("sum", "none", None)]
    assert all(torch.equal(value, peak_signal_noise_ratio(a, b, 1.0)) for value in values)


def shuffled(x: Tensor) -> Tensor:
    """Dimensions in an order that leaves few neighbours in memory side by side."""
    return x.permute(torch.randperm(x.ndim).tolist())


@pytest.mark.parametrize(
    "arrange",
    [
        lambda x: x,
        lambda x: x.transpose(0, 11),
        lambda x: x.repeat(*[1] * 11, 2)[..., ::2],
        lambda x: x[:1, :, :1].expand(x.shape),
        shuffled,
    ],
    ids=["contiguous", "transposed", "strided", "expanded", "shuffled"],
)
@pytest.mark.parametrize("dim", [None, (1, 3, 5, 7, 9, 11), (-1, 2), tuple(range(1, 12))], ids=str)
def test_twelve_dimensions(
    arrange: Callable[[Tensor], Tensor], dim: tuple[int, ...] | None, device: str
) -> None:
    preds, target = (arrange(torch.rand([2] * 12, device=device)) for _ in range(2))
    want = reference(preds, target, 1.0, dim=dim)
    got = peak_signal_noise_ratio(preds, target, 1.0, dim=dim, reduction="none")
    check(got, want)
    check(peak_signal_noise_ratio(preds, target, 1.0, dim=dim), np.asarray(want.mean()))
    flat = preds.contiguous(), target.contiguous()
    assert torch.equal(peak_signal_noise_ratio(*flat, 1.0, dim=dim, reduction="none"), got)
    meta = preds.to("meta"), target.to("meta")
    assert peak_signal_noise_ratio(*meta, 1.0, dim=dim, reduction="none").shape == got.shape


@pytest.mark.parametrize("ones", [1, 60, 100])
def test_bits_do_not_depend_on_dimensions_of_one(ones: int, device: str) -> None:
    def values(*images: Tensor) -> Tensor:
        dims = tuple(range(1, images[0].ndim))
        return peak_signal_noise_ratio(*images, 1.0, dim=dims, reduction="none")

    images = [torch.rand(3, 20, 30, 7, device=device) for _ in range(2)]
    wide = [x.reshape(3, *[1] * ones, 20, 30, 7).transpose(1, -1) for x in images]
    want = values(*(x.permute(0, 3, 1, 2) for x in images))
    assert torch.equal(values(*wide), want)
    assert torch.equal(values(*(x[2:] for x in wide)), want[2:])
    check(peak_signal_noise_ratio(*wide, 1.0), reference(*images, 1.0))


def test_expanded_target(device: str) -> None:
    preds = torch.rand(8, 3, 16, 16, device=device)
    target = torch.rand(1, 3, 16, 16, device=device).expand(8, 3, 16, 16)
    check(peak_signal_noise_ratio(preds, target, 1.0), reference(preds, target, 1.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.uint8], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_bits_of_an_image_do_not_depend_on_its_company(
    layout: Layout, dtype: torch.dtype, device: str
) -> None:
    preds, target = image_pair((5, 3, 61, 83), dtype, device)

    def values(a: Tensor, b: Tensor) -> Tensor:
        return peak_signal_noise_ratio(a, b, range_of(dtype), dim=(1, 2, 3), reduction="none")

    whole = values(layout.apply(preds), layout.apply(target))
    for i in range(5):
        assert torch.equal(values(preds[i : i + 1], target[i : i + 1])[0], whole[i])
    assert torch.equal(values(preds.flip(0), target.flip(0)).flip(0), whole)
    assert torch.equal(values(target, preds), whole)


def _pixels_at_an_odd_address(x: Tensor) -> Tensor:
    """Channels-last, one element off the start of the memory."""
    n, c, h, w = x.shape
    return x.new_zeros(x.numel() + 1)[1:].view(n, h, w, c).permute(0, 3, 1, 2).copy_(x)


LARGE_LAYOUTS = [*LAYOUTS, Layout("odd_address", _pixels_at_an_odd_address)]
# More than one piece a plane, the last one incomplete; three and four channels and others; a plane
# that is no multiple of a vector; on the CPU planes of whole runs, and more than a piece of pixels.
LARGE_SHAPES = [
    (2, 3, 168, 200),
    (1, 4, 152, 220),
    (1, 5, 140, 120),
    (2, 3, 131, 127),
    (1, 3, 128, 256),
    (2, 2, 260, 301),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", LARGE_SHAPES, ids=str)
def test_bits_of_large_images_do_not_depend_on_layout(
    shape: tuple[int, ...], dtype: torch.dtype, device: str
) -> None:
    """Also where the layouts of the two images differ."""
    # Bytes are cut where planes have 65,536 elements.
    scale = 2 if dtype == torch.uint8 else 1
    preds, target = image_pair((*shape[:2], shape[2] * scale, shape[3]), dtype, device)
    data_range = range_of(dtype)
    for dim in ((1, 2, 3), (2, 3), None):

        def values(a: Tensor, b: Tensor, dim: tuple[int, ...] | None = dim) -> Tensor:
            return peak_signal_noise_ratio(a, b, data_range, dim=dim, reduction="none")

        want = values(preds, target)
        check(want, reference(preds, target, data_range, dim=dim))
        for layout in LARGE_LAYOUTS:
            same = layout.apply(preds), layout.apply(target)
            for a, b in (same, (same[0], target), (preds, same[1])):
                assert torch.equal(values(a, b), want), (layout, dim)
        if dim == (1, 2, 3):
            assert torch.equal(values(preds[-1:], target[-1:]), want[-1:])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16], ids=str)
def test_clamped_large_images_in_any_layout(dtype: torch.dtype, device: str) -> None:
    preds, target = image_pair((1, 3, 264, 256), dtype, device)
    data_range = (20.5, 200.25) if dtype == torch.uint8 else (0.2, 0.7)
    want = peak_signal_noise_ratio(preds, target, data_range)
    check(want, reference(preds, target, data_range))
    for layout in LARGE_LAYOUTS:
        got = peak_signal_noise_ratio(layout.apply(preds), layout.apply(target), data_range)
        assert torch.equal(got, want), layout


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [0, 1, (0, 1)], ids=str)
@pytest.mark.parametrize("clamps", [False, True])
def test_bits_of_results_side_by_side(
    dtype: torch.dtype, dim: int | tuple[int, ...], clamps: bool, device: str
) -> None:
    """The first elements of all results lie in a row, or all of one result."""
    preds, target = image_pair((9, 3, 37, 53), dtype, device)
    whole = range_of(dtype)
    data_range = (0.25 * whole, 0.75 * whole) if clamps else whole

    def values(a: Tensor, b: Tensor) -> Tensor:
        return peak_signal_noise_ratio(a, b, data_range, dim=dim, reduction="none")

    def one_after_the_other(x: Tensor) -> Tensor:
        return x.permute(2, 3, 0, 1).contiguous().permute(2, 3, 0, 1)

    want = values(preds, target)
    check(want, reference(preds, target, data_range, dim=dim))
    assert torch.equal(values(one_after_the_other(preds), one_after_the_other(target)), want)
    assert torch.equal(values(preds, one_after_the_other(target)), want)


@pytest.mark.parametrize("start", range(17))
def test_rows_at_any_address(start: int, device: str) -> None:
    for dtype in (torch.uint8, torch.float16, torch.float32):
        a, b = image_pair((1, 1, 1, 20_000), dtype, device)
        b = b.flatten()[: 20_000 - start]
        want = peak_signal_noise_ratio(a.flatten()[start:].clone(), b, range_of(dtype))
        assert torch.equal(peak_signal_noise_ratio(a.flatten()[start:], b, range_of(dtype)), want)
        check(want, reference(a.flatten()[start:], b, range_of(dtype)))


@pytest.mark.fuzz
@examples(30)
@given(
    batch=st.integers(1, 5),
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    scale=st.floats(0.25, 4.0),
)
def test_shifting_and_scaling(batch: int, height: int, width: int, scale: float) -> None:
    preds, target = image_pair((batch, 1, height, width), torch.float64, "cpu", seed=batch)
    base = peak_signal_noise_ratio(preds, target, 1.0)
    scaled = peak_signal_noise_ratio(preds * scale, target * scale, scale)
    assert scaled.item() == pytest.approx(base.item(), rel=1e-9)
    shifted = peak_signal_noise_ratio(preds + 3, target + 3, 1.0)
    assert shifted.item() == pytest.approx(base.item(), rel=1e-9)


@every_lower_set
def test_lower_instruction_sets(isa: str) -> None:
    large = "bits_of_large_images and (127 or 220 or 301)"
    passes_with(isa, f"cpu and (matches_float64 or bits_of_an_image or mixed or {large})", __file__)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"data_range": 0}, ValueError, "`data_range` to be positive"),
        ({"data_range": -1.0}, ValueError, "`data_range` to be positive"),
        ({"data_range": math.nan}, ValueError, "`data_range` to be positive"),
        ({"data_range": (1.0, 0.0)}, ValueError, "low < high"),
        ({"data_range": (0.0, 1.0, 2.0)}, TypeError, "tuple of two"),
        ({"data_range": None}, TypeError, "`data_range` to be a number"),
        ({"data_range": "1"}, TypeError, "`data_range` to be a number"),
        ({"data_range": 1.0, "base": 1.0}, ValueError, "`base` to be positive and not 1"),
        ({"data_range": 1.0, "base": -2.0}, ValueError, "`base` to be positive and not 1"),
        ({"data_range": 1.0, "reduction": "mean"}, ValueError, "`reduction` to be one of"),
        ({"data_range": 1.0, "dim": 4}, IndexError, r"range of \[-4, 3\], but got 4"),
        ({"data_range": 1.0, "dim": (1, -3)}, RuntimeError, "dim 1 appears multiple times"),
    ],
)
def test_bad_arguments(arguments: dict, error: type[Exception], message: str, device: str) -> None:
    x = torch.rand(2, 3, 8, 8, device=device)
    with pytest.raises(error, match=message):
        peak_signal_noise_ratio(x, x, **arguments)


def test_bad_tensors(device: str) -> None:
    x = torch.rand(2, 3, 8, 8, device=device)
    with pytest.raises(
        RuntimeError, match=r"same shape, but got \[2, 3, 8, 8\] and \[1, 3, 8, 8\]"
    ):
        peak_signal_noise_ratio(x, x[:1], 1.0)
    with pytest.raises(RuntimeError, match="complex64"):
        peak_signal_noise_ratio(x.to(torch.complex64), x, 1.0)
