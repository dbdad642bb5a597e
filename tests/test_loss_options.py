"""Losses say what is wrong with options when they are made, and with masks by name."""

from __future__ import annotations

import re
from collections import UserList

import numpy as np
import pytest
import torch
from torch import nn

from syncfree.functional.image import (
    multiscale_structural_similarity_index_measure,
    structural_similarity_index_measure,
)
from syncfree.losses import (
    L1SSIMLoss,
    MSSSIMLoss,
    SSIMLoss,
    l1_ssim_loss,
    ms_ssim_loss,
    ssim_loss,
)

EACH = pytest.mark.parametrize("kind", [SSIMLoss, L1SSIMLoss, MSSSIMLoss])


@EACH
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"data_range": -1}, ValueError, "`data_range` to be positive"),
        ({"data_range": (1.0, 0.0)}, ValueError, "low < high"),
        ({"data_range": "1"}, TypeError, "`data_range` to be a number"),
        ({"sigma": -2}, ValueError, "`sigma` to have positive number"),
        ({"sigma": "wide"}, TypeError, "`sigma` to be a number"),
        ({"kernel_size": 10}, ValueError, "`kernel_size` to have odd positive number"),
        ({"kernel_size": (11, 4)}, ValueError, "`kernel_size` to have odd positive number"),
        ({"k1": None}, TypeError, "`k1`"),
        ({"k2": "0.03"}, TypeError, "`k2`"),
        ({"foo": 1}, TypeError, "argument 'foo'"),
        ({"mask": torch.ones(3)}, TypeError, "argument 'mask'"),
        ({"reduction": "none"}, TypeError, "argument 'reduction'"),
    ],
    ids=str,
)
def test_options_are_checked_when_a_loss_is_made(
    kind: type[nn.Module], options: dict, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        kind(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"betas": [0.4, 0.6]}, r"of a type tuple, but got list\. Write"),
        ({"betas": (1, 2)}, r"tuple of floats, but got \(1, 2\)\. Write"),
        ({"normalize": "softmax"}, "`normalize`"),
    ],
    ids=str,
)
def test_options_of_scales(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MSSSIMLoss(**options)


@pytest.mark.parametrize("loss", [ssim_loss, l1_ssim_loss, ms_ssim_loss])
@pytest.mark.parametrize("option", ["windowsize", "reduction"])
def test_unknown_options_name_the_loss_that_was_called(loss: object, option: str) -> None:
    images = torch.rand(2, 1, 3, 192, 192)
    with pytest.raises(TypeError, match=rf"^{loss.__name__}\(\) got .* '{option}'. Expected some"):
        loss(*images, **{option: 1})


@pytest.mark.parametrize("loss", [ssim_loss, l1_ssim_loss])
def test_a_size_that_has_no_effect_is_refused(loss: object, device: str) -> None:
    images = torch.rand(2, 1, 1, 32, 32, device=device)
    for options, size in (
        ({}, 7),
        ({"sigma": 1.0}, 11),
        ({}, (11, 7)),
        ({"sigma": (1.0, 2.0)}, 3),
        ({"sigma": (1.5, 1.0)}, (9, 11)),
    ):
        with pytest.raises(ValueError, match=r"`kernel_size` to be left out .* follows `sigma`"):
            loss(*images, kernel_size=size, **options)
    plain = loss(*images)
    assert torch.equal(loss(*images, kernel_size=11), plain)
    assert torch.equal(loss(*images, kernel_size=(11, 11), sigma=1.5), plain)
    assert not torch.equal(loss(*images, kernel_size=7, gaussian_kernel=False), plain)


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": "11"},
        {"kernel_size": None},
        {"kernel_size": 7.5},
        {"kernel_size": 10},
        {"kernel_size": -1},
        {"kernel_size": (11, 11, 11)},
        {"kernel_size": 11, "sigma": float("nan")},
        {"kernel_size": 11, "sigma": float("inf")},
        {"kernel_size": 11, "sigma": -1.0},
        {"kernel_size": 11, "sigma": "wide"},
        {"kernel_size": np.array([11, 11])},
        {"kernel_size": torch.tensor(7, device="meta")},
        {"kernel_size": 7, "gaussian_kernel": 1},
    ],
    ids=str,
)
def test_wrong_sizes_are_refused_as_by_the_metric(options: dict) -> None:
    images = torch.rand(2, 1, 1, 32, 32)
    with pytest.raises((TypeError, ValueError)) as expected:
        structural_similarity_index_measure(*images, data_range=1.0, **options)
    with pytest.raises(expected.type, match=re.escape(str(expected.value))):
        ssim_loss(*images, **options)


def test_sizes_of_other_sequences_are_taken() -> None:
    images = torch.rand(2, 1, 1, 32, 32)
    sizes = UserList([11, 11])
    assert torch.equal(ssim_loss(*images, kernel_size=sizes), ssim_loss(*images))


def test_a_size_counts_for_multi_scale() -> None:
    """There it says, as in TorchMetrics, how small images may be."""
    images = torch.rand(2, 1, 1, 128, 128)
    with pytest.raises(ValueError, match="kernel size 11"):
        ms_ssim_loss(*images)
    value = multiscale_structural_similarity_index_measure(*images, data_range=1.0, kernel_size=7)
    assert torch.equal(ms_ssim_loss(*images, kernel_size=7), 1 - value)


def test_a_size_counts_for_volumes() -> None:
    images = torch.rand(2, 1, 1, 12, 12, 12)
    assert not torch.equal(SSIMLoss(kernel_size=7)(*images), SSIMLoss()(*images))


def test_presets_are_checked_too() -> None:
    with pytest.raises(ValueError, match="`preset` to be one of"):
        SSIMLoss(preset="wang2004")
    with pytest.raises(ValueError, match="sets the window"):
        SSIMLoss(preset="wang", kernel_size=9)
    assert SSIMLoss(preset="skimage", gaussian_kernel=False, kernel_size=7).options
    with pytest.raises(TypeError, match=r"^L1SSIMLoss\(\) takes no argument `preset`: use SSIM"):
        L1SSIMLoss(preset="wang")
    with pytest.raises(ValueError, match="has no multi-scale SSIM"):
        MSSSIMLoss(preset="skimage")
    with pytest.raises(ValueError, match="sets the window"):
        MSSSIMLoss(preset="wang", sigma=0.5)
    with pytest.raises(ValueError, match="`normalize` to be left"):
        MSSSIMLoss(preset="wang", normalize="simple")


@pytest.mark.parametrize("loss", [ssim_loss, l1_ssim_loss, SSIMLoss(), L1SSIMLoss()])
def test_bad_masks_are_named(loss: object, device: str) -> None:
    images = torch.rand(2, 2, 3, 24, 24, device=device)
    for shape in ((2, 24, 24), (2, 3, 24, 23), (1, 2, 3, 24, 24)):
        mask = torch.ones(shape, device=device)
        with pytest.raises(RuntimeError) as caught:
            loss(*images, mask=mask)
        text = str(caught.value)
        assert "`mask`" in text
        assert f"to {[2, 3, 24, 24]}," in text
        assert f"but got {list(shape)}." in text
    for mask in ("a", 1.0, [[1.0]]):
        with pytest.raises(TypeError, match="`mask` to be a tensor or None, but got"):
            loss(*images, mask=mask)
