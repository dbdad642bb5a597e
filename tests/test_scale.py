"""The op that multiplies gradients in place by what arrives for their loss."""

from __future__ import annotations

import pytest
import torch

import syncfree.losses  # noqa: F401  (binds the op)


def test_bad_factors_are_refused(device: str) -> None:
    scale = torch.ops.syncfree.scale_.default
    a, b = torch.ones(2, 3, device=device)
    with pytest.raises(ValueError, match="to be one number, but got shape"):
        scale(a, b, torch.ones(2, device=device))
    with pytest.raises(RuntimeError, match="floating dtype"):
        scale(a, b, torch.ones((), dtype=torch.int64, device=device))
    one = torch.ones((), device=device)
    with pytest.raises(RuntimeError, match="`second` to be float32"):
        scale(a, b.double(), one)
    with pytest.raises(ValueError, match="`first` to fill its memory"):
        scale(torch.ones(8, device=device)[::2], b, one)
    with pytest.raises(ValueError, match="`second` to fill its memory"):
        scale(a, torch.ones(1, device=device).expand(4), one)
    with pytest.raises(ValueError, match="to share no memory"):
        scale(a, a[1:], one)
    for pair in ((a, b), (b, a)):
        with pytest.raises(ValueError, match="`factor` to lie outside"):
            scale(*pair, a[1])


def test_any_order_of_axes_is_scaled(device: str) -> None:
    x = torch.arange(24.0, device=device).reshape(1, 2, 3, 4)
    first, second = x.clone().permute(2, 0, 3, 1), x.clone().transpose(1, 2)
    torch.ops.syncfree.scale_(first, second, torch.tensor(3.0, device=device))
    assert torch.equal(first, (x * 3).permute(2, 0, 3, 1))
    assert torch.equal(second, (x * 3).transpose(1, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_factors_of_any_type(dtype: torch.dtype, device: str) -> None:
    x = torch.arange(4103.0, device=device)
    first, second = x.clone(), x.clone()[1:]  # one aligned for vectors, one not
    torch.ops.syncfree.scale_(first, second, torch.tensor(-0.5, dtype=dtype, device=device))
    assert torch.equal(first, x * -0.5)
    assert torch.equal(second, x[1:] * -0.5)
