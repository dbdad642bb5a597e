"""The table of calls of other libraries in docs/presets.md, row by row: values and gradients."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import pytorch_msssim
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, l1_loss, pad

from preset_reference import formula
from syncfree import functional, losses

PAGE = Path(__file__).resolve().parent.parent / "docs" / "presets.md"
ROWS = dict(re.findall(r"^\| (.*`.*\(preds, target.*) \| `(.+)` \|$", PAGE.read_text(), re.M))
NAMES = {
    **vars(functional),
    **vars(losses),
    "avg_pool2d": avg_pool2d,
    "l1_loss": l1_loss,
    "pad": pad,
}

Loss = Callable[[Tensor, Tensor], Tensor]


def ssim(border: str = "none") -> Loss:
    """The formula of Wang et al. at every window inside the image with its border."""

    def of(a: Tensor, b: Tensor) -> Tensor:
        if border != "none":
            a, b = (pad(x, [5] * 4, mode=border) for x in (a, b))
        return formula("wang").terms(a, b, 0.01, 0.03)[0].mean()

    return of


def multiscale(a: Tensor, b: Tensor) -> Tensor:
    product = torch.ones((), dtype=a.dtype, device=a.device)
    betas = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
    for level, beta in enumerate(betas, start=1):
        maps = formula("wang").terms(a, b, 0.01, 0.03)
        product = product * maps[level < len(betas)].mean((2, 3)) ** beta
        a, b = avg_pool2d(a, 2), avg_pool2d(b, 2)
    return product.mean()


def psnr(a: Tensor, b: Tensor) -> Tensor:
    return -10 * (a - b).square().mean((1, 2, 3)).log10()


def inside(a: Tensor) -> Tensor:
    return a[..., 4:-4, 4:-4]


def each(measure: Loss) -> Loss:
    return lambda a, b: torch.stack([measure(x[None], y[None]) for x, y in zip(a, b, strict=True)])


WANG, ZEROS, MIRROR = ssim(), ssim("constant"), ssim("reflect")
SMALL, LARGE = (2, 3, 48, 61), (1, 1, 192, 176)

# In the order of the rows, by words that each begins with.
THEIRS: list[tuple[str, tuple[int, ...], Loss]] = [
    ("`fused_ssim", SMALL, WANG),
    ("`fused_ssim", SMALL, ZEROS),
    ("Gaussian", SMALL, lambda a, b: 0.8 * (a - b).abs().mean() + 0.2 * (1 - ZEROS(a, b))),
    ("`pytorch_msssim", SMALL, lambda a, b: pytorch_msssim.ssim(a, b, data_range=1)),
    (
        "`pytorch_msssim",
        SMALL,
        lambda a, b: pytorch_msssim.ssim(a, b, data_range=1, size_average=False),
    ),
    ("`1 - pytorch_msssim", SMALL, lambda a, b: 1 - pytorch_msssim.SSIM(data_range=1)(a, b)),
    (
        "`1 - pytorch_msssim",
        (1, 3, 192, 176),
        lambda a, b: 1 - pytorch_msssim.MS_SSIM(data_range=1)(a, b),
    ),
    ("`kornia", SMALL, lambda a, b: (1 - MIRROR(a, b)) / 2),
    ("`kornia", SMALL, lambda a, b: (1 - WANG(a, b)) / 2),
    ("`kornia", SMALL, lambda a, b: -10 * (a - b).square().mean().log10()),
    ("`piq", SMALL, lambda a, b: 1 - WANG(a, b)),
    ("`piq", (1, 1, 384, 401), lambda a, b: 1 - WANG(avg_pool2d(a, 2), avg_pool2d(b, 2))),
    ("`piq", LARGE, multiscale),
    ("`piq", SMALL, lambda a, b: psnr(a, b).mean()),
    ("`basicsr", SMALL, lambda a, b: each(WANG)(inside(a), inside(b))),
    ("`basicsr", SMALL, lambda a, b: psnr(inside(a), inside(b))),
]


def test_each_row_has_its_formula() -> None:
    assert len(ROWS) == len(THEIRS)
    assert all(row.startswith(words) for row, (words, *_) in zip(ROWS, THEIRS, strict=True))


@pytest.mark.parametrize(("row", "theirs"), list(zip(ROWS, THEIRS, strict=True)), ids=list(ROWS))
def test_row(row: str, theirs: tuple[str, tuple[int, ...], Loss], device: str) -> None:
    _, shape, formula_of = theirs
    torch.manual_seed(0)
    target = torch.rand(shape, dtype=torch.float64, device=device)
    preds = (target + 0.1 * torch.randn_like(target)).clamp(0, 1).requires_grad_()
    want = formula_of(preds, target)
    got = eval(ROWS[row], {**NAMES, "preds": preds, "target": target})
    # pytorch-msssim keeps its taps in float32.
    tolerance = 3e-5 if "pytorch_msssim" in row else 1e-9
    torch.testing.assert_close(got, want, rtol=0, atol=tolerance)
    ones = torch.ones_like(want)
    want, got = (torch.autograd.grad(value, preds, ones)[0] for value in (want, got))
    assert (got - want).abs().max() <= tolerance * want.abs().max()
