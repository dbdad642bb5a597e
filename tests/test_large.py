"""More elements than a 32-bit index reaches: the last must count as the first does."""

from __future__ import annotations

import math

import pytest
import torch

from syncfree.functional import (
    binary_accuracy,
    image_quality,
    multiclass_accuracy,
    peak_signal_noise_ratio,
    safe_divide,
    structural_similarity_index_measure,
)

pytestmark = [pytest.mark.needs_cuda, pytest.mark.slow]

MANY = 2**31 + 4096


def test_psnr() -> None:
    target = torch.zeros(MANY, dtype=torch.uint8, device="cuda")
    preds = target.clone()
    preds[-1] = 255
    got = peak_signal_noise_ratio(preds, target, 255.0)
    assert got.item() == pytest.approx(10 * math.log10(MANY), rel=1e-6)
    strided = peak_signal_noise_ratio(preds[:, None].expand(-1, 2)[:, 1], target, 255.0)
    assert torch.equal(strided, got)


def test_ssim_and_quality() -> None:
    one = torch.randint(0, 256, (1, 3, 1080, 1920), dtype=torch.uint8, device="cuda")
    other = torch.randint(0, 256, (1, 3, 1080, 1920), dtype=torch.uint8, device="cuda")
    count = MANY // one.numel() + 2
    preds = one.repeat(count, 1, 1, 1)
    target = one.repeat(count, 1, 1, 1)
    target[-1] = other[0]
    got = structural_similarity_index_measure(preds, target, data_range=255.0, reduction="none")
    alone = structural_similarity_index_measure(one, other, data_range=255.0, reduction="none")
    assert torch.equal(got[:-1], torch.ones_like(got[:-1]))
    assert torch.equal(got[-1:], alone)
    quality = image_quality(preds, target, 255.0, reduction="none")
    assert torch.equal(quality.ssim, got)
    assert quality.psnr[:-1].isinf().all()
    assert quality.psnr[-1].isfinite()


def test_accuracy_of_wide_rows() -> None:
    rows, classes = MANY // 128256 + 2, 128256
    scores = torch.zeros(rows, classes, dtype=torch.bfloat16, device="cuda")
    target = torch.arange(rows, device="cuda") % classes
    scores[torch.arange(rows, device="cuda"), target] = 1
    target[-1] = classes - 1  # the only wrong row
    got = multiclass_accuracy(scores, target, classes, average="micro")
    assert got.item() == pytest.approx((rows - 1) / rows, rel=1e-6)
    macro = multiclass_accuracy(scores, target, classes, average="macro")
    # Classes seen: one for each row but the last, whose own class is missed and whose prediction
    # counts as a false positive of a class never targeted.
    assert macro.item() == pytest.approx((rows - 1) / (rows + 1), rel=1e-6)


def test_accuracy_of_many_labels() -> None:
    preds = torch.zeros(MANY, dtype=torch.uint8, device="cuda")
    target = preds.clone()
    preds[-1] = 1
    for average in ("micro", "macro"):
        got = multiclass_accuracy(preds, target, 2, average=average)
        want = (MANY - 1) / MANY if average == "micro" else (MANY - 1) / MANY / 2
        assert got.item() == pytest.approx(want, rel=1e-6)
    assert binary_accuracy(preds, target).item() == pytest.approx(1.0, abs=1e-6)
    preds[: MANY // 2] = 1
    assert binary_accuracy(preds, target).item() == pytest.approx(0.5, abs=1e-6)


def test_safe_divide() -> None:
    num = torch.ones(MANY, dtype=torch.uint8, device="cuda")
    num[-1] = 3
    out = safe_divide(num, torch.full((1,), 2.0, dtype=torch.float16, device="cuda"))
    assert out.shape == (MANY,)
    assert out[-1].item() == 1.5
    assert out[0].item() == 0.5
