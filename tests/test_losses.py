"""Losses against their definitions in float64, and their gradients against torch's autograd."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from cases import image_pair
from gradient_reference import check, gradients, multiscale, similarity, true_gradients
from ssim_reference import Window
from syncfree.functional import multiscale_structural_similarity_index_measure
from syncfree.losses import (
    L1SSIMLoss,
    MSSSIMLoss,
    SSIMLoss,
    l1_ssim_loss,
    ms_ssim_loss,
    ssim_loss,
)

FLOATING = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
VALUE_TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6}
SHAPE = (2, 3, 24, 61)
BETAS = (0.4, 0.6)


def masks(device: str) -> dict[str, Tensor | None]:
    weights = torch.rand(2, 1, 24, 61, generator=torch.Generator().manual_seed(5))
    return {
        "none": None,
        "weights": weights.to(device),
        "bool": (weights > 0.7).to(device),
        "bytes of a column": (torch.arange(61) % 3 == 0).byte().to(device),
    }


def truth(
    preds: Tensor,
    target: Tensor,
    mask: Tensor | None,
    weight: float,
    data_range: float | tuple[float, float] = 1.0,
    window: Window | None = None,
) -> Tensor:
    """The mixture of both losses; weight 1 is that of SSIM alone."""
    full = similarity(preds, target, window, data_range).map
    if isinstance(data_range, tuple):
        preds, target = preds.clamp(*data_range), target.clamp(*data_range)
    losses = (1 - weight) * (preds - target).abs() + weight * (1 - full)
    weights = torch.ones_like(losses) if mask is None else mask.double().expand_as(losses)
    return (losses * weights).sum() / weights.sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64], ids=str)
@pytest.mark.parametrize("loss", [SSIMLoss(), L1SSIMLoss()], ids=str)
def test_negative_weights(loss: SSIMLoss | L1SSIMLoss, dtype: torch.dtype, device: str) -> None:
    """As -1 for what shall not count: their sum may be anything, and the mean of it too."""
    preds, target = image_pair(SHAPE, torch.float32, device)
    preds.requires_grad_()
    mask = torch.ones(24, 61, dtype=dtype, device=device)
    mask[3, 5] = -1
    call = loss
    if device == "cpu":
        with pytest.raises(ValueError, match=r"hold weights that .* but the least is -1\. 0"):
            loss(preds, target, mask)
        call = torch.compile(loss, fullgraph=True, backend="eager")  # which looks at no values
    value = call(preds, target, mask)
    assert value.isnan()
    assert value.dtype == torch.float32
    value.backward()
    assert preds.grad is not None
    assert preds.grad.isnan().any()


@pytest.mark.parametrize("mask", ["none", "weights", "bool", "bytes of a column"])
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_ssim_loss(dtype: torch.dtype, mask: str, device: str) -> None:
    images = image_pair(SHAPE, dtype, device)
    m = masks(device)[mask]
    value = ssim_loss(*images, mask=m)
    assert value.shape == ()
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    want = truth(*(x.double() for x in images), m, 1.0)
    assert abs(value.double() - want) <= VALUE_TOLERANCE[value.dtype]
    got = gradients(lambda a, b: ssim_loss(a, b, mask=m) * 4096, *images)
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 1e-2}.get(dtype)
    check(got, true_gradients(lambda a, b: truth(a, b, m, 1.0) * 4096, *images), tolerance)


@pytest.mark.parametrize("data_range", [1.0, (0.2, 0.8)], ids=str)
@pytest.mark.parametrize("mask", ["none", "weights"])
@pytest.mark.parametrize("weight", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("dtype", FLOATING[:3], ids=str)
def test_l1_ssim_loss(
    dtype: torch.dtype,
    weight: float,
    mask: str,
    data_range: float | tuple[float, float],
    device: str,
) -> None:
    images = image_pair(SHAPE, dtype, device)
    m = masks(device)[mask]
    value = l1_ssim_loss(*images, weight, data_range, m)
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    want = truth(*(x.double() for x in images), m, weight, data_range)
    assert abs(value.double() - want) <= VALUE_TOLERANCE[value.dtype]
    got = gradients(lambda a, b: l1_ssim_loss(a, b, weight, data_range, m) * 4096, *images)
    check(
        got,
        true_gradients(lambda a, b: truth(a, b, m, weight, data_range) * 4096, *images),
        {torch.float16: 2e-3}.get(dtype),
    )


def nearly_equal(dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor]:
    """Images whose SSIM is nearer to 1 than bfloat16 has numbers."""
    _, target = image_pair(SHAPE, torch.float32, device)
    noise = torch.randn(SHAPE, generator=torch.Generator().manual_seed(1)).to(device)
    return (target + 0.004 * noise).to(dtype), target.to(dtype)


@pytest.mark.parametrize("mask", ["none", "weights"])
@pytest.mark.parametrize("dtype", FLOATING[2:], ids=str)
def test_losses_of_halves_are_wide(dtype: torch.dtype, mask: str, device: str) -> None:
    preds, target = nearly_equal(dtype, device)
    m = masks(device)[mask]
    for weight in (1.0, 0.3):
        want = truth(preds.double(), target.double(), m, weight)
        assert 1e-5 < want < 4e-3
        for other in (target, target.float()):  # as autocast mixes them
            mixed = L1SSIMLoss(weight)(preds, other, m)
            assert mixed.dtype == torch.float32
            torch.testing.assert_close(mixed.double(), want, rtol=1e-4, atol=5e-7)
    want = truth(preds.double(), target.double(), m, 1.0)
    for module in (True, False):
        value = SSIMLoss()(preds, target, m) if module else ssim_loss(preds, target, mask=m)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), want, rtol=1e-4, atol=5e-7)
    valid = ssim_loss(preds, target, preset="wang")
    wide = ssim_loss(preds.float(), target.float(), preset="wang")
    torch.testing.assert_close(valid, wide, rtol=0, atol=3e-7)


@pytest.mark.parametrize("loss", [SSIMLoss(), L1SSIMLoss(0.7)], ids=str)
@pytest.mark.parametrize("dtype", FLOATING[2:], ids=str)
def test_losses_of_halves_compile_and_map(
    loss: torch.nn.Module, dtype: torch.dtype, device: str
) -> None:
    torch._dynamo.reset()
    images = nearly_equal(dtype, device)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*images), loss(*images))
    for g, w in zip(gradients(compiled, *images), gradients(loss, *images), strict=True):
        assert torch.equal(g, w)
    mapped = torch.func.vmap(loss)(*(each[:, None] for each in images))
    each = torch.stack([loss(a[None], b[None]) for a, b in zip(*images, strict=True)])
    torch.testing.assert_close(mapped, each)


@pytest.mark.parametrize("normalize", ["relu", "simple"])
@pytest.mark.parametrize("data_range", [1.0, (0.25, 0.75)], ids=str)
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_ms_ssim_loss(
    dtype: torch.dtype, data_range: float | tuple[float, float], normalize: str, device: str
) -> None:
    images = image_pair(SHAPE, dtype, device)
    options = {"betas": BETAS, "normalize": normalize}

    def truth(a: Tensor, b: Tensor) -> Tensor:
        return 1 - multiscale(a, b, data_range=data_range, **options).mean()

    value = ms_ssim_loss(*images, data_range, **options)
    assert value.shape == ()
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert abs(value.double() - truth(*(x.double() for x in images))) <= (
        1e-12 if dtype == torch.float64 else 1e-6
    )
    got = gradients(lambda a, b: ms_ssim_loss(a, b, data_range, **options) * 4096, *images)
    check(
        got,
        true_gradients(lambda a, b: truth(a, b) * 4096, *images),
        {torch.float32: 1e-5}.get(dtype),
    )


def test_options_reach_ssim(device: str) -> None:
    images = image_pair(SHAPE, torch.float64, device)
    window = Window(gaussian_kernel=False, kernel_size=(3, 7))
    for mask in (None, masks(device)["weights"]):
        got = ssim_loss(*images, 2.0, mask, gaussian_kernel=False, kernel_size=(3, 7))
        torch.testing.assert_close(got, truth(*images, mask, 1.0, 2.0, window))
        got = l1_ssim_loss(*images, 0.3, 2.0, mask, gaussian_kernel=False, kernel_size=(3, 7))
        torch.testing.assert_close(got, truth(*images, mask, 0.3, 2.0, window))


def test_options_reach_ms_ssim(device: str) -> None:
    images = image_pair((2, 3, 40, 61), torch.float64, device)
    window = Window(gaussian_kernel=False, kernel_size=(3, 7))
    options = {"betas": (0.1, 0.2, 0.3), "normalize": "simple", "k1": 0.02, "k2": 0.05}
    got = ms_ssim_loss(*images, 2.0, gaussian_kernel=False, kernel_size=(3, 7), **options)
    want = multiscale(*images, window=window, data_range=2.0, **options)
    torch.testing.assert_close(got, 1 - want.mean())


@pytest.mark.parametrize("preset", ["wang", "pytorch-msssim"])
@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_presets_reach_ms_ssim(preset: str, dtype: torch.dtype, device: str) -> None:
    images = image_pair((2, 3, 40, 61), dtype, device)
    loss = MSSSIMLoss(betas=BETAS, preset=preset)
    value = multiscale_structural_similarity_index_measure(
        *(x.double() for x in images), data_range=1.0, betas=BETAS, preset=preset
    )
    got = loss(*images)
    assert got.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(got.double(), 1 - value, rtol=0, atol=1e-6)
    assert all(x.any() for x in gradients(loss, *images))
    assert f"preset={preset!r}" in repr(pickle.loads(pickle.dumps(loss)))


def test_a_mask_of_ones_changes_nothing(device: str) -> None:
    images = image_pair(SHAPE, torch.float32, device)
    ones = torch.ones(1, device=device)
    torch.testing.assert_close(ssim_loss(*images, mask=ones), ssim_loss(*images))
    torch.testing.assert_close(l1_ssim_loss(*images, mask=ones), l1_ssim_loss(*images))


def test_an_empty_mask_gives_zero_and_no_gradient(device: str) -> None:
    images = image_pair(SHAPE, torch.float32, device)
    none = torch.zeros(2, 1, 1, 1, dtype=torch.bool, device=device)
    assert ssim_loss(*images, mask=none) == 0
    for gradient in gradients(lambda a, b: l1_ssim_loss(a, b, mask=none), *images):
        assert (gradient == 0).all()


def test_equal_images_lose_nothing(device: str) -> None:
    a, _ = image_pair(SHAPE, torch.float32, device)
    for mask in masks(device).values():
        assert ssim_loss(a, a, mask=mask) == 0
        assert l1_ssim_loss(a, a, mask=mask) == 0
    assert ms_ssim_loss(a, a, betas=BETAS) == 0


def test_large_half_images_do_not_overflow(device: str) -> None:
    a, b = image_pair((1, 3, 300, 400), torch.float16, device)
    ones = torch.ones(1, device=device)
    torch.testing.assert_close(ssim_loss(a, b, mask=ones), ssim_loss(a, b), rtol=1e-3, atol=1e-3)


def test_modules_are_their_functions(device: str) -> None:
    images = image_pair(SHAPE, torch.float32, device)
    mask = masks(device)["weights"]
    for m in (None, mask):
        assert torch.equal(
            SSIMLoss(2.0, sigma=1.0)(*images, m), ssim_loss(*images, 2.0, m, sigma=1.0)
        )
        assert torch.equal(
            L1SSIMLoss(0.7, (0.1, 0.9))(*images, m), l1_ssim_loss(*images, 0.7, (0.1, 0.9), m)
        )
    assert torch.equal(
        MSSSIMLoss(2.0, betas=BETAS)(*images), ms_ssim_loss(*images, 2.0, betas=BETAS)
    )


def test_modules_copy_pickle_and_print() -> None:
    images = image_pair(SHAPE, torch.float32, "cpu")
    for loss in (SSIMLoss(2.0, k1=0.02), L1SSIMLoss(0.7), MSSSIMLoss(betas=BETAS)):
        for twin in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
            assert torch.equal(twin(*images), loss(*images))
        assert not list(loss.parameters())
    assert repr(SSIMLoss(2.0, k1=0.02)) == "SSIMLoss(data_range=2.0, k1=0.02)"
    assert repr(L1SSIMLoss()) == "L1SSIMLoss(weight=0.2, data_range=1.0)"
    assert repr(MSSSIMLoss(betas=BETAS)) == "MSSSIMLoss(data_range=1.0, betas=(0.4, 0.6))"


@pytest.mark.parametrize(
    "loss", [L1SSIMLoss(weight=0.8), MSSSIMLoss(betas=BETAS, normalize="simple")], ids=str
)
def test_descending_the_loss_restores_the_image(loss: torch.nn.Module, device: str) -> None:
    """What a loss is for: its gradient leads from noise to the target."""
    _, target = image_pair((1, 1, 32, 32), torch.float32, device)
    preds = torch.rand_like(target).requires_grad_()
    optimizer = torch.optim.Adam([preds], lr=0.05)
    for _ in range(150):
        optimizer.zero_grad()
        loss(preds, target).backward()
        optimizer.step()
    assert loss(preds, target) < 0.02
    assert (preds - target).abs().mean() < 0.05


def test_training_with_ms_ssim_at_its_defaults(device: str) -> None:
    """A filter learns to undo a loss of contrast."""
    _, target = image_pair((2, 1, 176, 180), torch.float32, device)
    faded = 0.5 * target + 0.2
    filter_ = torch.nn.Conv2d(1, 1, 1).to(device)
    with torch.no_grad():
        filter_.weight.fill_(1)
        filter_.bias.zero_()
    optimizer = torch.optim.Adam(filter_.parameters(), lr=0.05)
    loss = MSSSIMLoss()
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        value = loss(filter_(faded), target)
        value.backward()
        optimizer.step()
        losses.append(value.detach())
    assert losses[-1] < 0.02 * losses[0]
    torch.testing.assert_close(filter_(faded), target, rtol=0, atol=0.05)


@pytest.mark.parametrize("kind", ["mixture", "masked mixture", "scales"])
def test_compiles_whole(kind: str, device: str) -> None:
    torch._dynamo.reset()
    loss = MSSSIMLoss(betas=BETAS) if kind == "scales" else L1SSIMLoss()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    images = image_pair(SHAPE, torch.float32, device)
    more = (masks(device)["bool"],) if kind == "masked mixture" else ()
    got = gradients(lambda a, b: compiled(a, b, *more), *images)
    for g, w in zip(got, gradients(lambda a, b: loss(a, b, *more), *images), strict=True):
        torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("weight", [1, True, 0, Fraction(1, 4), torch.tensor(0.25).double()])
def test_weights_are_numbers_of_any_type(weight: float) -> None:
    images = image_pair(SHAPE, torch.float32, "cpu")
    value = l1_ssim_loss(*images, weight)
    assert value.dtype == torch.float32
    assert torch.equal(value, l1_ssim_loss(*images, float(weight)))
    assert torch.equal(value, L1SSIMLoss(weight)(*images))


def test_bad_arguments() -> None:
    a = torch.rand(1, 1, 16, 16)
    with pytest.raises(TypeError, match="the same range for every batch"):
        ssim_loss(a, a, None)
    with pytest.raises(TypeError, match="the same range for every batch"):
        SSIMLoss(None)
    with pytest.raises(TypeError, match="the same range for every batch"):
        ms_ssim_loss(a, a, None)
    with pytest.raises(TypeError, match="the same range for every batch"):
        MSSSIMLoss(None)
    for weight in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"`weight` to be in \[0, 1\]"):
            l1_ssim_loss(a, a, weight)
        with pytest.raises(ValueError, match=r"`weight` to be in \[0, 1\]"):
            L1SSIMLoss(weight)
    with pytest.raises(RuntimeError, match="expand"):
        ssim_loss(a, a, mask=torch.ones(3, 1, 16, 16))
    with pytest.raises(TypeError, match=r"^ssim_loss\(\) got an unexpected keyword argument 'win"):
        ssim_loss(a, a, window=3)
    with pytest.raises(TypeError, match=r"^l1_ssim_loss\(\) got an unexpected keyword argument 'r"):
        l1_ssim_loss(a, a, reduction="sum")
    with pytest.raises(TypeError, match=r"Expected some of data_range, .*, sigma, weight"):
        L1SSIMLoss(alpha=0.2)
    with pytest.raises(TypeError, match=r"Expected some of data_range, .*, preset, sigma"):
        SSIMLoss(reduction="none")
    with pytest.raises(TypeError, match="a tensor that requires a gradient"):
        l1_ssim_loss(a, a, torch.tensor(0.5, requires_grad=True))
    with pytest.raises(TypeError, match="unexpected keyword"):
        ms_ssim_loss(a, a, mask=a)
    with pytest.raises(ValueError, match="must be larger than or equal to 32"):
        ms_ssim_loss(a, a)
