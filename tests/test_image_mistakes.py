"""What callers of the image metrics get wrong, and what they are then told to do."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import syncfree.functional as sf
from syncfree import image
from syncfree.losses import L1SSIMLoss, MSSSIMLoss, SSIMLoss

SCALES = (0.4, 0.6)


def _ssim(a: Tensor, b: Tensor) -> object:
    return sf.structural_similarity_index_measure(a, b, data_range=1.0)


def _ms_ssim(a: Tensor, b: Tensor) -> object:
    return sf.multiscale_structural_similarity_index_measure(a, b, data_range=1.0, betas=SCALES)


def _ms_ssim_of_wang(a: Tensor, b: Tensor) -> object:
    return sf.multiscale_structural_similarity_index_measure(
        a, b, data_range=1.0, betas=SCALES, preset="wang"
    )


def _quality(a: Tensor, b: Tensor) -> object:
    return sf.image_quality(a, b, 1.0)


FUNCTIONS = [_ssim, _ms_ssim, _ms_ssim_of_wang, _quality]
MODULES = [
    image.StructuralSimilarityIndexMeasure(data_range=1.0),
    image.StructuralSimilarityIndexMeasure(data_range=1.0, preset="wang"),
    image.MultiScaleStructuralSimilarityIndexMeasure(data_range=1.0, betas=SCALES),
    SSIMLoss(),
    L1SSIMLoss(),
    MSSSIMLoss(betas=SCALES),
]
Measure = Callable[[Tensor, Tensor], object]


@pytest.mark.parametrize("measure", [*FUNCTIONS, *MODULES])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
def test_bytes_beside_floats_are_refused(measure: Measure, dtype: torch.dtype, device: str) -> None:
    if isinstance(measure, torch.nn.Module):
        measure = measure.to(device)
    floats = torch.rand(1, 3, 48, 48, device=device)
    octets, floats = (floats * 255).byte(), floats.to(dtype)
    for pair in ((octets, floats), (floats, octets)):
        with pytest.raises(TypeError, match="both images as bytes or both as floats") as caught:
            measure(*pair)
        assert "Divide the bytes by 255" in str(caught.value)
    measure(octets / 255, floats)


@pytest.mark.parametrize("measure", [*FUNCTIONS, *MODULES])
@pytest.mark.parametrize("dtype", [torch.int16, torch.int64], ids=str)
def test_integers_beside_floats_are_refused(
    measure: Measure, dtype: torch.dtype, device: str
) -> None:
    if isinstance(measure, torch.nn.Module):
        measure = measure.to(device)
    floats = torch.rand(1, 3, 48, 48, device=device)
    integers = (floats * 4095).to(dtype)
    for pair in ((integers, floats), (floats, integers)):
        with pytest.raises(TypeError, match="both images as integers or both as floats") as caught:
            measure(*pair)
        assert "Divide the integers by their range" in str(caught.value)
    measure(integers / 4095, floats)


@pytest.mark.parametrize("measure", [_ssim, _quality])
def test_meta_and_compiled_refuse_them_too(measure: Measure) -> None:
    pair = torch.zeros(1, 3, 48, 48), torch.zeros(1, 3, 48, 48, dtype=torch.uint8)
    with pytest.raises(TypeError, match="both images as bytes"):
        measure(*(x.to("meta") for x in pair))
    torch._dynamo.reset()
    compiled = torch.compile(measure, fullgraph=True, backend="eager")
    with pytest.raises(Exception, match="both images as bytes"):
        compiled(*pair)


@pytest.mark.parametrize("measure", [*FUNCTIONS, *MODULES])
def test_an_image_without_a_batch_axis(measure: Measure, device: str) -> None:
    if isinstance(measure, torch.nn.Module):
        measure = measure.to(device)
    images = torch.rand(2, 3, 48, 48, device=device)
    with pytest.raises(ValueError, match=r"Got preds: \[3, 48, 48\].*`\.unsqueeze\(0\)`"):
        measure(*images)
    measure(*images.unsqueeze(1))


@pytest.mark.parametrize("measure", [lambda a, b: sf.peak_signal_noise_ratio(a, b, 1.0), _ssim])
def test_one_target_for_all_images(measure: Measure, device: str) -> None:
    preds = torch.rand(4, 3, 48, 48, device=device)
    for pair in ((preds, preds[0]), (preds[:1], preds), (preds[:, :1], preds)):
        with pytest.raises(
            RuntimeError, match=r"pass `\*torch\.broadcast_tensors\(preds, target\)`"
        ):
            measure(*pair)
        # The fake says it too.
        with pytest.raises(
            RuntimeError, match=r"pass `\*torch\.broadcast_tensors\(preds, target\)`"
        ):
            measure(*(images.to("meta") for images in pair))
        measure(*torch.broadcast_tensors(*pair))
    with pytest.raises(RuntimeError, match=r"\[4, 3, 48, 48\] and \[3, 3, 48, 48\]\.$"):
        measure(preds, preds[:3])
    with pytest.raises(RuntimeError, match=r"\[4, 1, 1, 1\] and \[1, 1, 1, 4\]\.$"):
        measure(preds[:, :1, :1, :1], torch.rand(1, 1, 1, 4, device=device))


def test_images_too_small_for_their_scales(device: str) -> None:
    images = torch.rand(2, 1, 3, 64, 64, device=device)
    metric = image.MultiScaleStructuralSimilarityIndexMeasure(data_range=1.0).to(device)
    measure = sf.multiscale_structural_similarity_index_measure
    for call in (lambda: measure(*images), lambda: metric(*images), lambda: MSSSIMLoss()(*images)):
        with pytest.raises(ValueError, match="the image height must be larger than 160") as caught:
            call()
        text = str(caught.value)
        assert text.startswith("For a given number of `betas` parameters 5 and kernel size 11")
        assert "shape [1, 3, 64, 64]" in text
        assert "fewer `betas`" in text
        assert "smaller `kernel_size`" in text
    # What it says to do does it.
    measure(*images, betas=SCALES)
    measure(*images, gaussian_kernel=False, kernel_size=3)
    with pytest.raises(ValueError, match=r"equal to 32.*shape \[1, 3, 31, 64\].*fewer `betas`\.$"):
        measure(*images[..., :31, :])


def test_the_smallest_images_for_five_scales(device: str) -> None:
    images = torch.rand(2, 1, 1, 176, 176, device=device)
    measure = sf.multiscale_structural_similarity_index_measure
    measure(*images, data_range=1.0)
    for cut in (images[..., 1:, :], images[..., 1:]):
        with pytest.raises(ValueError, match=r"must be larger than 160.*shape \[1, 1, 17"):
            measure(*cut, data_range=1.0)


def test_psnr_wants_a_range_without_a_preset() -> None:
    x = torch.rand(1, 1, 8, 8)
    for call in (lambda: sf.peak_signal_noise_ratio(x, x), image.PeakSignalNoiseRatio):
        with pytest.raises(
            TypeError, match=r"`data_range` to be a number or .* got None or nothing\."
        ):
            call()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 forgets overloads")
def test_type_checkers_know_when_ssim_is_a_tensor() -> None:
    function = sf.structural_similarity_index_measure
    forms = typing.get_overloads(function)
    hints = [typing.get_type_hints(form) for form in forms]
    pair = tuple[Tensor, Tensor]
    assert [hint["return"] for hint in hints] == [Tensor, pair, pair, Tensor | pair]
    no, yes = typing.Literal[False], typing.Literal[True]
    extras = [(h["return_full_image"], h["return_contrast_sensitivity"]) for h in hints]
    assert extras == [(no, no), (yes, no), (no, yes), (bool, bool)]
    for form in forms:
        assert set(inspect.signature(form).parameters) == set(
            inspect.signature(function).parameters
        )
