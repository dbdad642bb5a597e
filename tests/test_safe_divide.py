"""safe_divide against NumPy and TorchMetrics' own."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torchmetrics.utilities.compute import _safe_divide

from syncfree.functional import safe_divide

TYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.bool,
]


@pytest.mark.parametrize("first", TYPES, ids=str)
@pytest.mark.parametrize("second", TYPES, ids=str)
def test_dtypes(first: torch.dtype, second: torch.dtype, device: str) -> None:
    num = torch.randint(-5, 6, (7, 33), device=device).to(first)
    denom = torch.randint(-3, 4, (7, 33), device=device).to(second)
    got = safe_divide(num, denom)
    theirs = _safe_divide(num, denom)
    assert got.dtype == theirs.dtype
    a, b = num.double().cpu().numpy(), denom.double().cpu().numpy()
    want = np.divide(a, b, out=np.zeros_like(a), where=b != 0)
    torch.testing.assert_close(got.cpu(), torch.from_numpy(want).to(got.dtype), rtol=0, atol=0)
    # Theirs divides in the tensors' type, which rounds at most once more than ours.
    torch.testing.assert_close(got, theirs)


@pytest.mark.parametrize(
    ("a", "b"),
    [((), ()), ((3,), ()), ((2, 1, 4), (3, 1)), ((5, 1), (1, 6)), ((0, 3), (1, 3)), ((4, 7), (7,))],
    ids=str,
)
def test_broadcasting(a: tuple[int, ...], b: tuple[int, ...], device: str) -> None:
    num = torch.randn(a, dtype=torch.float64, device=device)
    denom = torch.randint(-1, 2, b, device=device).double()
    got = safe_divide(num, denom, zero_division=7.0)
    want = torch.where(
        denom != 0, num / denom, torch.tensor(7.0, dtype=torch.float64, device=device)
    )
    assert torch.equal(got, want)
    assert got.is_contiguous()


@pytest.mark.parametrize(
    ("a", "b"),
    [([2] * 12, [2] * 12), ([2, 1] * 6, [1, 2] * 6), ([2] * 12, []), ([1] * 60, [1] * 50 + [3])],
    ids=["same", "crossed", "scalar", "ones"],
)
@pytest.mark.parametrize(
    "arrange",
    [
        lambda x: x,
        lambda x: x.transpose(0, -1) if x.ndim else x,
        lambda x: x.permute([*range(0, x.ndim, 2), *range(1, x.ndim, 2)]),
        lambda x: x.permute(torch.randperm(x.ndim).tolist()),
    ],
    ids=["contiguous", "transposed", "sorted", "shuffled"],
)
def test_many_dimensions(
    arrange: Callable[[torch.Tensor], torch.Tensor], a: list[int], b: list[int], device: str
) -> None:
    num = arrange(torch.randn(a, dtype=torch.float64, device=device))
    denom = arrange(torch.randn(b, dtype=torch.float64, device=device))
    got = safe_divide(num, denom)
    assert torch.equal(got, num / denom)
    assert got.is_contiguous()
    assert safe_divide(num.to("meta"), denom.to("meta")).shape == got.shape


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_results_are_rounded_once(dtype: torch.dtype, device: str) -> None:
    """Doubles in the middle of two neighbours, where ties go to even, and next to it."""
    infinity = int(torch.tensor(math.inf, dtype=dtype).view(torch.int16))
    numbers = torch.arange(infinity, dtype=torch.int16).view(dtype).double().tolist()
    numbers.append(2 * numbers[-1] - numbers[-2])
    zero = torch.zeros((), dtype=dtype, device=device)
    got, want = [], []
    for below in [0, 1, 2, *range(3, infinity - 1, 331), infinity - 1]:
        middle = (numbers[below] + numbers[below + 1]) / 2
        for x, bits in (
            (math.nextafter(middle, 0), below),
            (middle, below + below % 2),
            (math.nextafter(middle, math.inf), below + 1),
        ):
            got += [safe_divide(zero, zero, x), safe_divide(zero, zero, -x)]
            want += [bits, bits - 2**15]
    assert torch.stack(got).view(torch.int16).tolist() == want


def test_layouts(device: str) -> None:
    num = torch.randn(6, 10, 4, device=device)
    denom = torch.randn(6, 10, 4, device=device)
    want = num / denom
    assert torch.allclose(
        safe_divide(num.transpose(0, 2), denom.transpose(0, 2)), want.transpose(0, 2)
    )
    assert torch.allclose(safe_divide(num[::2, 1::3], denom[::2, 1::3]), want[::2, 1::3])


@pytest.mark.parametrize("value", [0.0, 1.0, -2.5, math.inf, math.nan])
def test_zero_division_and_nan(value: float, device: str) -> None:
    num = torch.tensor([0.0, 1.0, math.nan, math.nan, 1.0, math.inf], device=device)
    denom = torch.tensor([0.0, -0.0, 0.0, 2.0, math.nan, math.inf], device=device)
    got = safe_divide(num, denom, value).tolist()
    want = [value, value, value, math.nan, math.nan, math.nan]
    np.testing.assert_array_equal(got, np.float32(want))


def test_bad_input(device: str) -> None:
    x = torch.ones(2, 3, device=device)
    with pytest.raises(RuntimeError, match=r"broadcast, but got \[2, 3\] and \[4\]"):
        safe_divide(x, torch.ones(4, device=device))
    with pytest.raises(RuntimeError, match="complex64"):
        safe_divide(x.to(torch.complex64), x)


def test_gradient_is_refused_not_forgotten(device: str) -> None:
    x = torch.ones(3, device=device, requires_grad=True)
    with pytest.raises(NotImplementedError, match="not implemented yet"):
        safe_divide(x, x).sum().backward()


@pytest.mark.parametrize(
    ("num", "denom", "want"),
    [
        (torch.ones(3), torch.tensor(2.0, dtype=torch.float64), torch.float32),
        (torch.tensor(2.0, dtype=torch.float64), torch.ones(3), torch.float32),
        (torch.ones(3, dtype=torch.float16), torch.tensor(2.0), torch.float16),
        (torch.ones(3, dtype=torch.float16), torch.tensor(2), torch.float16),
        (torch.tensor(2), torch.tensor(2.0, dtype=torch.float64), torch.float64),
        (torch.ones(3, dtype=torch.int64), torch.tensor(2.0, dtype=torch.float64), torch.float32),
    ],
)
def test_scalar_tensors_yield(
    num: torch.Tensor, denom: torch.Tensor, want: torch.dtype, device: str
) -> None:
    got = safe_divide(num.to(device), denom.to(device))
    assert got.dtype == want == _safe_divide(num, denom).dtype
    assert safe_divide(num.to("meta"), denom.to("meta")).dtype == want


def test_numbers_are_no_tensors() -> None:
    with pytest.raises(TypeError, match="`denom` to be a tensor, but got float"):
        safe_divide(torch.ones(3), 2.0)  # type: ignore[arg-type]
