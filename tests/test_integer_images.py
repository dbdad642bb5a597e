"""SSIM and its kin of integers that are no bytes: 16-bit pictures, masks, differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchmetrics.functional.image as tm
import torchmetrics.image as tm_classes
from torch import Tensor

import syncfree.functional as sf
from syncfree.image import (
    MultiScaleStructuralSimilarityIndexMeasure,
    StructuralSimilarityIndexMeasure,
)

WIDE = [torch.int16, torch.int32, torch.int64]
each_dtype = pytest.mark.parametrize("dtype", WIDE, ids=str)


def pictures(dtype: torch.dtype, device: str, size: int = 40, top: int = 200) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    shape = (2, 3, size, size)
    return [torch.randint(0, top, shape, generator=generator).to(device, dtype) for _ in range(2)]


@each_dtype
def test_torchmetrics_number_for_a_range_of_two_floats(dtype: torch.dtype, device: str) -> None:
    preds, target = pictures(dtype, device)
    options: dict[str, Any] = {"data_range": (10.0, 180.0)}
    expected = tm.structural_similarity_index_measure(preds, target, **options)
    value = sf.structural_similarity_index_measure(preds, target, **options)
    torch.testing.assert_close(value, expected, rtol=0, atol=2e-6)
    ours = StructuralSimilarityIndexMeasure(**options).to(device)
    theirs = tm_classes.StructuralSimilarityIndexMeasure(**options).to(device)
    for metric in (ours, theirs):
        metric.update(preds, target)
    torch.testing.assert_close(ours(target, preds), theirs(target, preds), rtol=0, atol=2e-6)
    torch.testing.assert_close(ours.compute(), theirs.compute(), rtol=0, atol=2e-6)


FORMS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "ssim": lambda p, t: sf.structural_similarity_index_measure(p, t, data_range=4095),
    "range from data": lambda p, t: sf.structural_similarity_index_measure(p, t),
    "map": lambda p, t: sf.structural_similarity_index_measure(
        p, t, data_range=4095, return_full_image=True
    ),
    "skimage": lambda p, t: sf.structural_similarity_index_measure(
        p, t, data_range=4095, preset="skimage"
    ),
    "ms_ssim": lambda p, t: sf.multiscale_structural_similarity_index_measure(
        p, t, data_range=(0, 4095)
    ),
    "ms_ssim wang": lambda p, t: sf.multiscale_structural_similarity_index_measure(
        p, t, data_range=4095, preset="wang"
    ),
    "quality": lambda p, t: sf.image_quality(p, t, data_range=4095),
    "class": lambda p, t: StructuralSimilarityIndexMeasure(data_range=4095).to(p.device)(p, t),
    "ms_ssim class": lambda p, t: MultiScaleStructuralSimilarityIndexMeasure(data_range=4095).to(
        p.device
    )(p, t),
}


@each_dtype
@pytest.mark.parametrize("form", FORMS)
def test_integers_count_as_float32(form: str, dtype: torch.dtype, device: str) -> None:
    preds, target = pictures(dtype, device, 180, 4096)
    value, expected = (
        FORMS[form](preds.to(as_given), target.to(as_given)) for as_given in (dtype, torch.float32)
    )
    torch.testing.assert_close(value, expected, rtol=0, atol=0)


def test_negative_integers(device: str) -> None:
    preds, target = (x - 60 for x in pictures(torch.int8, device, top=120))
    value = sf.structural_similarity_index_measure(preds, target, data_range=120)
    expected = tm.structural_similarity_index_measure(preds.float(), target.float(), data_range=120)
    torch.testing.assert_close(value, expected, rtol=0, atol=2e-6)


def test_integers_of_two_dtypes(device: str) -> None:
    preds, target = pictures(torch.int64, device)
    value = sf.structural_similarity_index_measure(preds, target.to(torch.uint8), data_range=255)
    expected = sf.structural_similarity_index_measure(preds, target, data_range=255)
    assert value == expected


@pytest.mark.parametrize("bad", [torch.bool, torch.uint16], ids=str)
def test_other_dtypes_still_raise(bad: torch.dtype, device: str) -> None:
    preds, target = pictures(torch.int32, device)
    pairs = {"preds": (preds.to(bad), target), "target": (preds, target.to(bad))}
    for name, pair in pairs.items():
        for images in (pair, [x.to("meta") for x in pair]):
            with pytest.raises(RuntimeError, match=f"Expected `{name}` to be") as caught:
                sf.structural_similarity_index_measure(*images, data_range=255)
            assert str(bad).removeprefix("torch.") in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32], ids=str)
def test_compiled(dtype: torch.dtype, device: str) -> None:
    def value(preds: Tensor, target: Tensor) -> Tensor:
        return sf.structural_similarity_index_measure(preds, target, data_range=255.0)

    pair = pictures(dtype, device)
    assert torch.compile(value, fullgraph=True, backend="aot_eager")(*pair) == value(*pair)
