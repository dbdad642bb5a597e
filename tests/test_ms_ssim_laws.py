"""What multi-scale SSIM promises besides its number: bits, NaN, empty batches, errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torchmetrics.functional.image as tm
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cases import DTYPES, LAYOUTS, Layout, image_pair, range_of
from drawing import examples
from instruction_sets import every_lower_set, passes_with
from ssim_reference import Window
from syncfree.functional.image import (
    multiscale_structural_similarity_index_measure,
    structural_similarity_index_measure,
)

BETAS = (0.2, 0.3, 0.5)

# One for each path that a problem may take.
PATHS = [Window(), Window(sigma=1.2), Window(False, kernel_size=5)]

every_path = pytest.mark.parametrize("window", PATHS, ids=str)


def values(
    preds: Tensor, target: Tensor, window: Window | None = None, **options: object
) -> Tensor:
    defaults = {"reduction": "none", "data_range": 1.0, "betas": BETAS}
    return multiscale_structural_similarity_index_measure(
        preds, target, **{**defaults, **(window or Window()).options, **options}
    )


@every_path
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("normalize", ["relu", "simple", None])
def test_identical_images_have_exactly_one(
    normalize: str | None, dtype: torch.dtype, window: Window, device: str
) -> None:
    x = image_pair((2, 3, 70, 91), dtype, device)[0]
    x[1] = x[1, 0, 0, 0]
    got = values(x, x.clone(), window, data_range=range_of(dtype), normalize=normalize)
    assert torch.equal(got, torch.ones_like(got))


@pytest.mark.fuzz
@examples(60)
@given(
    seed=st.integers(0, 10_000),
    height=st.integers(44, 100),
    width=st.integers(44, 100),
    window=st.sampled_from(PATHS),
    noise=st.floats(0, 2),
    normalize=st.sampled_from(["relu", "simple"]),
    power=st.sampled_from([0.5, 2.0, 3.0]),
)
def test_bounds_symmetry_and_powers(
    seed: int,
    height: int,
    width: int,
    window: Window,
    noise: float,
    normalize: str,
    power: float,
) -> None:
    preds, target = image_pair((1, 1, height, width), torch.float64, "cpu", seed)
    target = target + noise * torch.randn_like(target)
    got = values(preds, target, window, normalize=normalize)
    assert 0 <= got <= 1
    swapped = values(target, preds, window, normalize=normalize)
    torch.testing.assert_close(swapped, got, rtol=0, atol=1e-12)
    betas = tuple(power * beta for beta in BETAS)
    torch.testing.assert_close(
        values(preds, target, window, normalize=normalize, betas=betas), got**power
    )


@every_path
def test_one_scale_is_ssim(window: Window, device: str) -> None:
    pair = image_pair((3, 2, 40, 51), torch.float64, device)
    ssim = structural_similarity_index_measure(
        *pair, data_range=1.0, reduction="none", **window.options
    )
    assert torch.equal(values(*pair, window, betas=(1.0,)), ssim)


@every_path
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize(
    ("dtype", "width"),
    [(torch.float32, 187), (torch.float64, 187), (torch.uint8, 187), (torch.uint8, 900)],
    ids=str,
)
def test_bits_of_an_image_do_not_depend_on_its_company(
    dtype: torch.dtype, width: int, layout: Layout, window: Window, device: str
) -> None:
    preds, target = image_pair((5, 3, 101, width), dtype, device)
    options = {"data_range": range_of(dtype)}
    whole = values(layout.apply(preds), target, window, **options)
    for i in range(5):
        alone = values(preds[i : i + 1], target[i : i + 1], window, **options)
        assert torch.equal(alone[0], whole[i])
    swapped = values(preds.flip(0), layout.apply(target.flip(0)), window, **options)
    assert torch.equal(swapped.flip(0), whole)
    one = target[:1, :1].expand(5, 3, 101, width)
    assert torch.equal(
        values(preds, one, window, **options), values(preds, one.contiguous(), window, **options)
    )


@pytest.mark.fuzz
@examples(25)
@given(
    batch=st.integers(2, 6),
    cut=st.integers(1, 5),
    seed=st.integers(0, 1000),
    height=st.integers(44, 140),
    width=st.integers(44, 140),
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
    preds, target = image_pair((200, 1, 44, 44), torch.float64, device)
    each = values(preds, target, window)
    torch.testing.assert_close(values(preds, target, window, reduction="sum"), each.sum())
    torch.testing.assert_close(
        values(preds, target, window, reduction="elementwise_mean"), each.mean()
    )


@every_path
@pytest.mark.parametrize("normalize", ["relu", "simple", None])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("at", [(0, 0), (44, 36), (80, 74)], ids=str)
def test_bad_pixels_spoil_their_image_only(
    at: tuple[int, int], bad: float, normalize: str | None, window: Window, device: str
) -> None:
    preds, target = image_pair((3, 1, 82, 75), torch.float32, device)
    clean = values(preds, target, window, normalize=normalize)
    target[1, 0, at[0], at[1]] = bad
    got = values(preds, target, window, normalize=normalize)
    assert got.isnan().tolist() == [False, True, False]
    assert torch.equal(got[::2], clean[::2])
    if math.isnan(bad):
        assert values(preds, target, window, data_range=None).isnan().all()


@pytest.mark.parametrize("data_range", [1.0, None])
def test_empty_batch(data_range: float | None, device: str) -> None:
    x = torch.rand(0, 3, 50, 50, device=device)
    assert values(x, x, data_range=data_range).shape == (0,)
    assert values(x, x, data_range=data_range, reduction="elementwise_mean").isnan()
    assert values(x, x, data_range=data_range, reduction="sum") == 0


@every_lower_set
def test_lower_instruction_sets(isa: str) -> None:
    chosen = (
        "cpu and (contiguous and matches_float64 or float32 and (windows or volumes) or company)"
    )
    passes_with(isa, chosen, __file__, Path(__file__).with_name("test_ms_ssim.py"))


Shape = tuple[int, ...]

# Shape and arguments that TorchMetrics refuses.
REFUSED: list[tuple[Shape, dict[str, object]]] = [
    ((1, 1, 31, 200), {"betas": (0.2,) * 5, "kernel_size": 1}),
    ((1, 1, 200, 31), {"betas": (0.2,) * 5, "kernel_size": 1}),
    ((1, 1, 175, 176), {"betas": (0.2,) * 5}),
    ((1, 1, 176, 175), {"betas": (0.2,) * 5}),
    ((1, 1, 60, 60), {"kernel_size": (3, 17)}),
    ((1, 1, 60, 60), {"kernel_size": (17, 3)}),
    ((1, 1, 8, 50, 50), {"kernel_size": (13, 3, 3)}),
    ((3, 60, 60), {}),
    ((1, 1, 60, 60), {"betas": [0.5, 0.5]}),
    ((1, 1, 60, 60), {"betas": (1, 1)}),
    ((1, 1, 60, 60), {"betas": None}),
    ((1, 1, 60, 60), {"normalize": "relu6"}),
    ((1, 1, 60, 60), {"kernel_size": 10}),
    ((1, 1, 60, 60), {"kernel_size": (11, 11, 11)}),
    ((1, 1, 60, 60), {"sigma": -1.5}),
    # Windows that fit the first scale and not the last.
    ((1, 1, 44, 44), {"sigma": 3.5}),
    ((1, 1, 22, 44), {"kernel_size": 5}),
    ((1, 1, 8, 44, 44), {"sigma": 0.7}),
    ((1, 1, 2, 44, 44), {"sigma": 0.1, "kernel_size": 1}),
]


def error_of(function: Callable[..., Tensor], *args: object, **options: object) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        function(*args, **options)
    return caught.value


@pytest.mark.parametrize(("shape", "arguments"), REFUSED, ids=str)
def test_refuses_what_torchmetrics_refuses(
    shape: Shape, arguments: dict[str, object], device: str
) -> None:
    x = torch.rand(shape, device=device)
    options = {"betas": BETAS, "data_range": 1.0, **arguments}
    ours = error_of(multiscale_structural_similarity_index_measure, x, x, **options)
    theirs = error_of(tm.multiscale_structural_similarity_index_measure, x, x, **options)
    assert type(ours) is type(theirs)
    if isinstance(ours, ValueError):
        # TorchMetrics prints shapes as torch.Size([...]).
        assert str(ours).startswith(str(theirs).replace("torch.Size(", "").rstrip(".")[:80])
    else:
        assert "should be less than the corresponding input dimension" in str(ours)
    traced = error_of(
        multiscale_structural_similarity_index_measure, x.to("meta"), x.to("meta"), **options
    )
    assert type(traced) is type(ours)
    assert str(traced)[:60] == str(ours)[:60]


@pytest.mark.parametrize("scales", [0, 33])
def test_refuses_a_number_of_scales(scales: int, device: str) -> None:
    x = torch.rand(1, 1, 60, 60, device=device)
    for images in (x, x.to("meta")):
        with pytest.raises(ValueError, match=f"hold 1 to 32 numbers, but got {scales}"):
            values(images, images, betas=(0.1,) * scales)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"reduction": "mean"}, ValueError, "`reduction` to be one of"),
        ({"data_range": 0.0}, ValueError, "`data_range` to be positive"),
        ({"data_range": (1.0, 0.0)}, ValueError, "low < high"),
        ({"k1": "a"}, TypeError, "`k1` to be a number"),
        ({"normalize": ["relu"]}, ValueError, "`normalize`"),
    ],
)
def test_bad_arguments(
    arguments: dict[str, object], error: type[Exception], message: str, device: str
) -> None:
    x = torch.rand(1, 1, 60, 60, device=device)
    with pytest.raises(error, match=message):
        values(x, x, **arguments)


def test_bad_dtypes(device: str) -> None:
    x = torch.ones(1, 1, 60, 60, device=device)
    for pair in ((x.bool(), x), (x, x.bool())):
        with pytest.raises(
            RuntimeError, match="images of a floating or integer dtype, but got bool"
        ):
            values(*pair)


@pytest.mark.parametrize("reduction", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
def test_op_keeps_the_rules_of_custom_ops(dtype: torch.dtype, reduction: int, device: str) -> None:
    pair = image_pair((2, 3, 50, 60), dtype, device)
    window = True, [1.5], [11]
    rest = 1.0, None, 0.01, 0.03, list(BETAS), 1, reduction
    torch.library.opcheck(torch.ops.syncfree.multiscale_ssim.default, (*pair, *window, *rest))
