"""What SSIM promises of what takes many units on a GPU: bits, digits, pixels far apart."""

from __future__ import annotations

import pytest
import torch

from cases import CROWD, LAYOUTS, Layout, image_pair
from ssim_reference import Window
from syncfree.functional.image import image_quality
from test_ssim_laws import PATHS, maps, values


# Strips take images of this size, one with aligned rows and one whose last column stands alone.
@pytest.mark.parametrize("window", [PATHS[0], PATHS[-1]], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("width", [516, 517])
def test_bytes_have_the_bits_of_their_numbers(
    width: int, layout: Layout, window: Window, device: str
) -> None:
    """Which a wrong byte shows anywhere, at a border and in the last column too."""
    preds, target = image_pair((2, 3, 301, width), torch.uint8, device)
    preds = layout.apply(preds)
    bytes_, floats = (
        image_quality(a, b, 255.0, reduction="none", **window.options)
        for a, b in ((preds, target), (preds.float(), target.float()))
    )
    assert torch.equal(bytes_.ssim, floats.ssim)
    assert torch.equal(
        values(preds, target, window, data_range=255.0),
        values(preds.float(), target.float(), window, data_range=255.0),
    )


@pytest.mark.parametrize("window", [PATHS[0], PATHS[-1]], ids=str)
def test_bits_do_not_depend_on_company_in_a_crowd(window: Window, device: str) -> None:
    preds, target = image_pair(CROWD, torch.float32, device)
    preds[:, ::3] = 0.9 + 0.01 * preds[:, ::3]
    whole = values(preds, target, window)
    for i in range(len(whole)):
        assert torch.equal(values(preds[i : i + 1], target[i : i + 1], window)[0], whole[i])


@pytest.mark.parametrize("window", [PATHS[0], PATHS[-1]], ids=str)
def test_bits_do_not_depend_on_company_of_many_units(window: Window, device: str) -> None:
    """A warp's share is another one from 32 units on: 1041 an image, 1056 warps of an H100."""
    preds, target = image_pair((40 if device == "cuda" else 2, 1, 43_700, 6), torch.float32, device)
    whole = values(preds, target, window)
    assert len(whole.unique()) == len(whole)
    for i in (0, len(whole) // 2, len(whole) - 1):
        assert torch.equal(values(preds[i : i + 1], target[i : i + 1], window)[0], whole[i])


# Units as one sum's terms, as images' and a batch's, and so many of images or of one that they have
# slots: patches, then strips (of 42 rows; an image has 68,479 of 46 or 78,750 of 40).
@pytest.mark.needs_cuda
@pytest.mark.parametrize(
    "shape",
    [
        (65_535, 1, 8, 8),
        (30_000, 3, 8, 8),
        (65_537, 1, 8, 8),
        (70, 1, 43_700, 6),
        (2, 1, 3_150_000, 6),
    ],
    ids=str,
)
@pytest.mark.parametrize("window", [PATHS[0], PATHS[-1]], ids=str)
@pytest.mark.parametrize("repeats", [False, True], ids=["distinct", "repeated"])
def test_sums_of_many_units(repeats: bool, window: Window, shape: tuple[int, ...]) -> None:
    """Which keep their digits, of images all alike too: these round to one side."""
    preds = torch.rand((1 if repeats else shape[0], *shape[1:]), device="cuda").expand(shape)
    target = (preds + 0.1 * torch.rand_like(preds[:1] if repeats else preds)).clamp(0, 1)
    for close in (target, preds + 1e-4 * (target - preds)):
        each = values(preds, close, window)
        mean, total = (
            values(preds, close, window, reduction=reduction)
            for reduction in ("elementwise_mean", "sum")
        )
        of_pixels = maps(preds, close, window).double().mean()
        torch.testing.assert_close(mean.double(), of_pixels, rtol=0, atol=1e-7)
        torch.testing.assert_close(mean.double(), each.double().mean(), rtol=0, atol=6e-8)
        torch.testing.assert_close(total.double() / len(each), mean.double(), rtol=1e-7, atol=0)
        assert torch.equal(image_quality(preds, close, 1.0, **window.options).ssim, mean)


@pytest.mark.needs_cuda
@pytest.mark.parametrize(
    ("height", "width", "strides"),
    [(6, 32, (1 << 32, 1)), (43_700, 6, (1, 1 << 31))],
    ids=["rows", "columns"],
)
def test_pixels_too_far_apart_for_32_bits(
    height: int, width: int, strides: tuple[int, int]
) -> None:
    size = 1 + (height - 1) * strides[0] + (width - 1) * strides[1]
    if torch.cuda.mem_get_info()[0] < 1.2 * size:
        pytest.skip(f"the memory between such pixels is {size / 1e9:.0f} GB")
    shape = 1, 1, height, width
    preds = torch.empty(size, dtype=torch.uint8, device="cuda").as_strided(shape, (0, 0, *strides))
    preds.copy_(torch.randint(0, 256, shape, dtype=torch.uint8, device="cuda"))
    target = torch.randint(0, 256, shape, dtype=torch.uint8, device="cuda")
    window = Window(False, kernel_size=7)
    found = values(preds, target, window, data_range=255.0)
    expected = values(preds.contiguous(), target, window, data_range=255.0)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
