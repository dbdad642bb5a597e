"""What SSIM promises besides its number: bounds, bits, NaN, empty batches, errors."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cases import DTYPES, LAYOUTS, LONG, Layout, image_pair, range_of
from drawing import examples
from instruction_sets import every_lower_set, passes_with
from ssim_reference import Window
from syncfree.functional.image import structural_similarity_index_measure

# One for each path that a problem may take.
PATHS = [
    Window(),
    Window(sigma=1.2),
    Window(sigma=0.3),
    Window(sigma=6.0),
    Window(False, kernel_size=7),
]

every_path = pytest.mark.parametrize("window", PATHS, ids=str)


def values(preds: Tensor, target: Tensor, window: Window, **options: object) -> Tensor:
    return structural_similarity_index_measure(
        preds, target, **{"reduction": "none", "data_range": 1.0, **window.options, **options}
    )


def maps(preds: Tensor, target: Tensor, window: Window, **options: object) -> Tensor:
    return values(preds, target, window, return_full_image=True, **options)[1]


@every_path
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("level", [None, 0.0, 0.3, 0.6, 1.0], ids=str)
def test_identical_images_have_exactly_one(
    level: float | None, dtype: torch.dtype, window: Window, device: str
) -> None:
    x = image_pair((2, 3, 70, 90), dtype, device)[0]
    if level is not None:
        x = torch.full_like(x, level * range_of(dtype))
    value, full = values(x, x.clone(), window, data_range=range_of(dtype), return_full_image=True)
    assert torch.equal(value, torch.ones_like(value))
    assert torch.equal(full, torch.ones_like(full))
    _, contrast = values(
        x,
        x.clone(),
        Window(sigma=1.2),
        data_range=range_of(dtype),
        return_contrast_sensitivity=True,
    )
    assert torch.equal(contrast, torch.ones_like(contrast))


@pytest.mark.fuzz
@examples(60)
@given(
    seed=st.integers(0, 10_000),
    height=st.integers(22, 60),
    width=st.integers(22, 60),
    window=st.sampled_from(PATHS),
    offset=st.floats(-2, 2),
    gain=st.sampled_from([-1.0, 0.0, 1e-4, 1.0, 300.0]),
    data_range=st.sampled_from([1e-3, 1.0, 255.0]),
)
def test_bounds_and_symmetry(
    seed: int,
    height: int,
    width: int,
    window: Window,
    offset: float,
    gain: float,
    data_range: float,
) -> None:
    preds, target = image_pair((1, 1, height, width), torch.float32, "cpu", seed)
    target = gain * target + offset
    full = maps(preds, target, window, data_range=data_range)
    assert full.abs().max() <= 1
    swapped = maps(target, preds, window, data_range=data_range)
    torch.testing.assert_close(swapped, full, rtol=0, atol=1e-6)
    flipped = maps(preds.flip(-1), target.flip(-1), window, data_range=data_range).flip(-1)
    torch.testing.assert_close(flipped, full, rtol=0, atol=1e-6)


@pytest.mark.parametrize("window", [window for window in PATHS if window.sigma != 0.3], ids=str)
def test_opposite_images_stay_within_the_bounds(window: Window, device: str) -> None:
    """Where rounding alone would carry pixels of the map below -1."""
    board = (torch.arange(96, device=device)[:, None] + torch.arange(96, device=device)) % 2 * 2 - 1
    draws = torch.Generator().manual_seed(0)
    noise = board * (0.2 + 0.1 * torch.rand(8, 3, 96, 96, generator=draws).to(device))
    _, full = values(0.5 + noise, 0.5 - noise, window, k1=1.0, k2=1e-6, return_full_image=True)
    assert -1 <= full.min() < -1 + 1e-6


@every_path
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_bits_of_an_image_do_not_depend_on_its_company(
    dtype: torch.dtype, layout: Layout, window: Window, device: str
) -> None:
    preds, target = image_pair((5, 3, 61, 83), dtype, device)
    whole = values(layout.apply(preds), target, window)
    full = maps(layout.apply(preds), layout.apply(target), window)
    for i in range(5):
        one = preds[i : i + 1], target[i : i + 1]
        assert torch.equal(values(*one, window)[0], whole[i])
        assert torch.equal(maps(*one, window)[0], full[i])
    assert torch.equal(values(preds.flip(0), target.flip(0), window).flip(0), whole)
    assert torch.equal(values(preds[1:4], layout.apply(target)[1:4], window), whole[1:4])


@pytest.mark.parametrize(
    ("window", "width"),
    [*((window, 140) for window in PATHS), *product((PATHS[0], PATHS[-1]), (590, 592))],
    ids=str,
)
@pytest.mark.parametrize("data_range", [1.0, 0.1])
def test_bits_do_not_depend_on_company_where_pivots_change(
    data_range: float, window: Window, width: int, device: str
) -> None:
    """Flat parts far from the level need pivots, and so does the difference where it is large.

    Where the range is a tenth of the images', s has pivots and d has none.
    """
    generator = torch.Generator().manual_seed(4)
    preds = torch.rand((7, 3, 150, width), generator=generator)
    preds[:, :, 31:58] = 0.9
    preds[:, :, 90:, :70] *= 1e-3
    target = (preds + 0.05 * torch.rand(preds.shape, generator=generator)).clamp(0, 1)
    target[:, 1, 64:75] += 0.3
    preds, target = preds.to(device), target.to(device)
    options = {"data_range": data_range}
    whole, full = values(preds, target, window, **options), maps(preds, target, window, **options)
    for i, layout in zip((0, 1, 3, 4, 6), LAYOUTS, strict=True):
        one = layout.apply(preds[i : i + 1]), layout.apply(target[i : i + 1])
        assert torch.equal(values(*one, window, **options)[0], whole[i])
        assert torch.equal(maps(*one, window, **options)[0], full[i])


@pytest.mark.fuzz
@examples(25)
@given(
    batch=st.integers(2, 6),
    cut=st.integers(1, 5),
    seed=st.integers(0, 1000),
    height=st.integers(22, 140),
    width=st.integers(22, 140),
    window=st.sampled_from(PATHS),
)
def test_bits_survive_splits_and_permutations(
    batch: int, cut: int, seed: int, height: int, width: int, window: Window
) -> None:
    preds, target = image_pair((batch, 2, height, width), torch.float32, "cpu", seed)
    whole = values(preds, target, window)
    parts = [values(p, t, window) for p, t in zip(preds.split(cut), target.split(cut), strict=True)]
    assert torch.equal(torch.cat(parts), whole)
    order = torch.randperm(batch)
    assert torch.equal(values(preds[order], target[order], window), whole[order])


@every_path
def test_bits_do_not_depend_on_threads(window: Window) -> None:
    preds, target = image_pair((3, 3, 150, 90), torch.float32, "cpu")
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3, 7):
            torch.set_num_threads(count)
            results.append(values(preds, target, window))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(r, results[0]) for r in results)


@every_path
def test_reductions_agree(window: Window, device: str) -> None:
    preds, target = image_pair((5, 1, 50, 60), torch.float64, device)
    each = values(preds, target, window)
    torch.testing.assert_close(values(preds, target, window, reduction="sum"), each.sum())
    torch.testing.assert_close(
        values(preds, target, window, reduction="elementwise_mean"), each.mean()
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("dtype", "width", "window"),
    [
        *((dtype, 75, window) for dtype in (torch.float32, torch.float64) for window in PATHS),
        *((torch.float32, LONG, window) for window in (PATHS[0], PATHS[-1])),
    ],
    ids=str,
)
def test_bad_pixels_spoil_their_windows_only(
    dtype: torch.dtype, width: int, bad: float, window: Window, device: str
) -> None:
    preds, target = image_pair((2, 1, 80, width), dtype, device)
    clean = maps(preds, target, window)
    target = target.clone()
    target[1, 0, 44, 36] = bad
    value, full = values(preds, target, window, return_full_image=True)
    assert value.isnan().tolist() == [False, True]
    assert values(preds, target, window).isnan().tolist() == [False, True]
    half = window.padding(2)
    spoiled = torch.zeros_like(full, dtype=torch.bool)
    spoiled[1, 0, 44 - half[0] : 45 + half[0], 36 - half[1] : 37 + half[1]] = True
    assert torch.equal(full.isnan(), spoiled)
    assert (full[~spoiled] - clean[~spoiled]).abs().max() <= {64: 0, 32: 1e-6, 16: 2**-9}[
        8 * full.element_size()
    ]
    _, contrast = values(preds, target, window, return_contrast_sensitivity=True)
    assert contrast.isnan().tolist() == [False, True]


@every_path
@pytest.mark.parametrize("reduction", ["elementwise_mean", "sum"])
def test_a_bad_pixel_spoils_its_batch_once(reduction: str, window: Window, device: str) -> None:
    preds, target = image_pair((4, 1, 40, 75), torch.float32, device)
    options = {"reduction": reduction}
    clean = values(preds, target, window, **options)
    spoiled = target.clone()
    spoiled[2, 0, 3, 70] = math.nan
    assert values(preds, spoiled, window, **options).isnan()
    assert torch.equal(values(preds, target, window, **options), clean)


def test_nan_passes_the_clamp_and_spoils_the_range(device: str) -> None:
    preds, target = image_pair((2, 1, 30, 30), torch.float32, device)
    preds[0, 0, 3, 3] = math.nan
    assert values(preds, target, Window(), data_range=(0.0, 1.0)).isnan().tolist() == [True, False]
    assert values(preds, target, Window(), data_range=None).isnan().all()


def test_flat_images_without_constants_are_undefined(device: str) -> None:
    x = torch.full((1, 1, 20, 20), 0.5, device=device)
    assert values(x, x, Window(), k1=0.0, k2=0.0).isnan().all()


@pytest.mark.parametrize("size", [20, 600])
@pytest.mark.parametrize("window", [Window(), Window(False, kernel_size=7)], ids=str)
def test_constants_next_to_nothing(window: Window, size: int, device: str) -> None:
    """Whose products are no normal floats, as some have them against a division by zero."""
    black = torch.zeros(1, 1, size, size, device=device, requires_grad=True)
    options = {"data_range": 1.0, "k1": 1e-10, "k2": 1e-10, **window.options}
    value, contrast = structural_similarity_index_measure(
        black, black.detach(), return_contrast_sensitivity=True, **options
    )
    assert value == contrast == 1
    (gradient,) = torch.autograd.grad(value, black)
    assert (gradient == 0).all()


@pytest.mark.parametrize("data_range", [1.0, None])
def test_empty_batch(data_range: float | None, device: str) -> None:
    x = torch.rand(0, 3, 20, 20, device=device)
    assert values(x, x, Window(), data_range=data_range).shape == (0,)
    assert values(x, x, Window(), data_range=data_range, reduction="elementwise_mean").isnan()
    assert values(x, x, Window(), data_range=data_range, reduction="sum") == 0
    assert maps(x, x, Window(), data_range=data_range).shape == x.shape


def test_images_without_an_inside_have_no_contrast(device: str) -> None:
    preds, target = image_pair((2, 1, 9, 30), torch.float32, device)
    value, contrast = values(preds, target, Window(), return_contrast_sensitivity=True)
    assert value.isfinite().all()
    assert contrast.isnan().all()


def test_expanded_target(device: str) -> None:
    preds, target = image_pair((6, 3, 32, 40), torch.float32, device)
    one = target[:1, :1].expand(6, 3, 32, 40)
    assert torch.equal(values(preds, one, Window()), values(preds, one.contiguous(), Window()))


@every_lower_set
def test_lower_instruction_sets(isa: str) -> None:
    chosen = (
        "cpu and not strided and not sliced and not transposed and not uint8 and not bfloat16"
        " and (matches_float64 or digits or windows or volumes or company or bad_pixels)"
    )
    here = Path(__file__)
    others = [here.with_name(name) for name in ("test_ssim.py", "test_image_quality.py")]
    passes_with(isa, chosen, here, *others)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"kernel_size": 10}, ValueError, "Expected `kernel_size` to have odd positive number"),
        ({"kernel_size": -3}, ValueError, "Expected `kernel_size` to have odd positive number"),
        ({"kernel_size": (11, 4)}, ValueError, "Expected `kernel_size` to have odd positive"),
        ({"kernel_size": (11, 11, 11)}, ValueError, "`kernel_size` has dimension 3"),
        ({"sigma": 0.0}, ValueError, "Expected `sigma` to have positive number"),
        ({"sigma": (1.5, -1.0)}, ValueError, "Expected `sigma` to have positive number"),
        ({"sigma": math.nan}, ValueError, "Expected `sigma` to have positive number"),
        ({"sigma": (1.5, 1e7)}, ValueError, r"positive number below 1e6\. Got \[1\.5, 1e\+07\]"),
        ({"sigma": (1.5, 1.5, 1.5)}, ValueError, "has dimension 3"),
        ({"sigma": 3.0}, RuntimeError, "Padding size should be less than"),
        ({"gaussian_kernel": False, "kernel_size": 17}, RuntimeError, "Padding size should be"),
        ({"reduction": "mean"}, ValueError, "`reduction` to be one of"),
        ({"data_range": 0.0}, ValueError, "`data_range` to be positive"),
        ({"data_range": (1.0, 0.0)}, ValueError, "low < high"),
        ({"data_range": [0.0, 1.0]}, TypeError, "`data_range` to be a number"),
        (
            {"return_full_image": True, "return_contrast_sensitivity": True},
            ValueError,
            "mutually exclusive",
        ),
    ],
)
def test_bad_arguments(arguments: dict, error: type[Exception], message: str, device: str) -> None:
    x = torch.rand(2, 3, 8, 8, device=device)
    with pytest.raises(error, match=message):
        structural_similarity_index_measure(x, x, **{"data_range": 1.0, **arguments})


@pytest.mark.parametrize(
    ("preds", "target", "error", "message"),
    [
        ((2, 3, 16, 16), (2, 3, 16, 17), RuntimeError, "expected to have the same shape"),
        ((3, 16, 16), (3, 16, 16), ValueError, "BxCxHxW or BxCxDxHxW shape"),
        ((1, 1, 1, 16, 16, 16), (1, 1, 1, 16, 16, 16), ValueError, "BxCxHxW or BxCxDxHxW shape"),
        ((3, 16, 16), (1, 3, 16, 16), RuntimeError, "expected to have the same shape"),
        ((1, 1, 16, 5), (1, 1, 16, 5), RuntimeError, "Padding size should be less than"),
        ((1, 1, 5, 16, 16), (1, 1, 5, 16, 16), RuntimeError, "Padding size should be less than"),
    ],
)
def test_bad_shapes(
    preds: tuple, target: tuple, error: type[Exception], message: str, device: str
) -> None:
    with pytest.raises(error, match=message):
        structural_similarity_index_measure(
            torch.rand(preds, device=device), torch.rand(target, device=device), data_range=1.0
        )


@pytest.mark.parametrize("where", ["device", "meta"])
def test_volume_without_width(where: str, device: str) -> None:
    """Its last axis is padded by `kernel_size`, which may be more than a narrow Gaussian takes."""
    x = torch.rand(1, 1, 6, 6, 0, device=device if where == "device" else where)
    with pytest.raises(RuntimeError, match="Padding size should be less than"):
        structural_similarity_index_measure(x, x, sigma=0.1, data_range=1.0)


@pytest.mark.parametrize("dtype", [torch.bool, torch.complex64], ids=str)
def test_bad_dtypes(dtype: torch.dtype, device: str) -> None:
    x = torch.ones(1, 1, 16, 16, device=device)
    for pair in ((x.to(dtype), x), (x, x.to(dtype))):
        with pytest.raises(RuntimeError, match=r"but got (bool|complex64)"):
            structural_similarity_index_measure(*pair, data_range=1.0)
