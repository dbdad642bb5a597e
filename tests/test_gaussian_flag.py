"""`gaussian_kernel` stands where PSNR has its data range: `ssim(x, y, 1.0)` is easily written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import syncfree.functional as F
from syncfree.image import (
    MultiScaleStructuralSimilarityIndexMeasure,
    StructuralSimilarityIndexMeasure,
)
from syncfree.losses import MSSSIMLoss, SSIMLoss

X, Y = torch.rand(2, 1, 3, 192, 192, generator=torch.Generator().manual_seed(0)).unbind()

FUNCTIONS: dict[str, Callable[[Any], Tensor]] = {
    "ssim": lambda flag: F.structural_similarity_index_measure(X, Y, flag),
    "ssim-sequences": lambda flag: F.structural_similarity_index_measure(
        X, Y, flag, kernel_size=[11, 11]
    ),
    "ms-ssim": lambda flag: F.multiscale_structural_similarity_index_measure(X, Y, flag),
    "image-quality": lambda flag: F.image_quality(X, Y, data_range=1.0, gaussian_kernel=flag).ssim,
}
OBJECTS: dict[str, Callable[[Any], Any]] = {
    "ssim": StructuralSimilarityIndexMeasure,
    "ms-ssim": MultiScaleStructuralSimilarityIndexMeasure,
    "ssim-loss": lambda flag: SSIMLoss(gaussian_kernel=flag),
    "ms-ssim-loss": lambda flag: MSSSIMLoss(gaussian_kernel=flag),
}


@pytest.mark.parametrize("value", [1.0, 1, 255, "no", (0.0, 1.0)], ids=repr)
@pytest.mark.parametrize("call", FUNCTIONS.values(), ids=list(FUNCTIONS))
def test_functions_take_nothing_else(call: Callable[[Any], Tensor], value: object) -> None:
    """A window of the wrong kind was a wrong value without a word."""
    with pytest.raises(TypeError, match=r"`gaussian_kernel` to be True or False.*data_range=1\.0"):
        call(value)


@pytest.mark.parametrize("make", OBJECTS.values(), ids=list(OBJECTS))
def test_classes_and_losses_say_so_when_made(make: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="`gaussian_kernel` to be True or False, but got"):
        make(1.0)


@pytest.mark.parametrize("call", FUNCTIONS.values(), ids=list(FUNCTIONS))
def test_flags_of_numpy_are_flags(call: Callable[[Any], Tensor]) -> None:
    for flag in (True, False):
        torch.testing.assert_close(call(np.bool_(flag)), call(flag), rtol=0.0, atol=0.0)
