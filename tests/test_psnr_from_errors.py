"""PSNR from what a metric has gathered: the op beside float64, and `compute` of the class."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchmetrics.image as tm
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from cases import FLOATING, image_pair
from syncfree._ops.psnr import psnr_from_errors
from syncfree._ops.registry import REDUCTIONS
from syncfree.image import PeakSignalNoiseRatio

NUMBERS = [*FLOATING, torch.int64, torch.int32]
NONE, MEAN, SUM = REDUCTIONS["none"], REDUCTIONS["elementwise_mean"], REDUCTIONS["sum"]


def formula(errors: Tensor, total: Tensor, data_range: Tensor, base: float = 10.0) -> Tensor:
    return (2 * torch.log(data_range) - torch.log(errors / total)) * (10 / math.log(base))


def in_double(*tensors: Tensor) -> Tensor:
    return formula(*(tensor.cpu().double() for tensor in tensors))


def gathered(size: tuple[int, ...], device: str) -> tuple[Tensor, Tensor, Tensor]:
    errors = torch.rand(size, dtype=torch.float64, device=device) * 100
    return errors, torch.randint(1, 5000, size, device=device), torch.tensor(2.0, device=device)


@pytest.mark.parametrize("size", [(), (5,)], ids=str)
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_dtypes(dtype: torch.dtype, size: tuple[int, ...], device: str) -> None:
    """The formula's own in torch, but rounded once."""
    for total_dtype, range_dtype in itertools.product(NUMBERS, NUMBERS):
        errors = torch.randint(1, 900, size, device=device).to(dtype)
        total = torch.randint(1, 900, size, device=device).to(total_dtype)
        data_range = torch.tensor(3, device=device, dtype=range_dtype)
        got = psnr_from_errors(errors, total, data_range, 10.0, NONE)
        assert got.dtype == formula(errors, total, data_range).dtype
        assert got.shape == size
        eps = torch.finfo(got.dtype).eps
        want = in_double(errors, total, data_range)
        torch.testing.assert_close(got.cpu().double(), want, rtol=4 * eps, atol=16 * eps)


# Of one thread, of several blocks, and of blocks that take several results a thread.
@pytest.mark.parametrize("count", [1, 257, 70000, 600000])
def test_reductions(count: int, device: str) -> None:
    operands = gathered((count,), device)
    want = in_double(*operands)
    close: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-10}
    got = [psnr_from_errors(*operands, 10.0, code).cpu() for code in (NONE, MEAN, SUM)]
    torch.testing.assert_close(got[0], want, **close)
    torch.testing.assert_close(got[1], want.mean(), **close)
    torch.testing.assert_close(got[2], want.sum(), **close)
    halves = [operand[: count // 2] if operand.ndim else operand for operand in operands]
    assert torch.equal(psnr_from_errors(*halves, 10.0, NONE).cpu(), got[0][: count // 2])


@pytest.mark.parametrize("base", [2.0, math.e, 0.5])
def test_bases(base: float, device: str) -> None:
    operands = gathered((7,), device)
    got = psnr_from_errors(*operands, base, NONE).cpu()
    want = in_double(*operands) * math.log(10) / math.log(base)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "arrange",
    [
        lambda x: x.transpose(0, 1),
        lambda x: x[:, ::2],
        lambda x: x.flatten()[1:],
        lambda x: x[:1].expand(5, 6),
        lambda x: x[0, 0].reshape([1] * 9),
        lambda x: torch.stack([x] * 4).view([2] * 2 + [1] * 6 + [4, 6]).movedim(0, -1),
    ],
    ids=["transposed", "strided", "off", "expanded", "ones", "many dimensions"],
)
def test_layouts(arrange: Callable[[Tensor], Tensor], device: str) -> None:
    errors, total, data_range = gathered((4, 6), device)
    for a, b in ((arrange(errors), arrange(total)), (arrange(errors), total[0, 0])):
        got = psnr_from_errors(a, b, data_range, 10.0, NONE)
        torch.testing.assert_close(got.cpu(), in_double(a, b, data_range), rtol=1e-12, atol=1e-12)
        assert got.is_contiguous()
        mean = psnr_from_errors(a, b, data_range, 10.0, MEAN)
        torch.testing.assert_close(mean.cpu(), got.mean().cpu(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
def test_values_that_are_no_numbers(dtype: torch.dtype, device: str) -> None:
    errors = torch.tensor([0.0, math.inf, math.nan, 0.0, 3.0, 3.0], dtype=dtype, device=device)
    total = torch.tensor([4, 4, 4, 0, 0, 3], device=device)
    one = torch.ones((), device=device)
    got = psnr_from_errors(errors, total, one, 10.0, NONE)
    torch.testing.assert_close(got, formula(errors, total, one), equal_nan=True)
    expected = torch.tensor([math.inf, -math.inf, math.nan, math.nan, -math.inf, 0.0])
    torch.testing.assert_close(got.cpu(), expected.to(dtype), equal_nan=True)
    for code in (MEAN, SUM):
        assert psnr_from_errors(errors[:1], total[:1], one, 10.0, code) == math.inf
        assert psnr_from_errors(errors, total, one, 10.0, code).isnan()
        assert psnr_from_errors(errors[-1:], total[-1:], one * math.nan, 10.0, code).isnan()


def test_means_that_the_dtype_does_not_hold(device: str) -> None:
    errors = torch.tensor(0.001, dtype=torch.float16, device=device)
    total = torch.tensor(60000, dtype=torch.float16, device=device)
    one = torch.ones((), dtype=torch.float16, device=device)
    assert formula(errors, total, one) == math.inf
    got = psnr_from_errors(errors, total, one, 10.0, NONE)
    torch.testing.assert_close(got.cpu(), in_double(errors, total, one).half())


def test_no_results(device: str) -> None:
    errors, total, data_range = gathered((0,), device)
    assert psnr_from_errors(errors, total, data_range, 10.0, NONE).shape == (0,)
    assert psnr_from_errors(errors, total, data_range, 10.0, MEAN).isnan()
    assert psnr_from_errors(errors, total, data_range, 10.0, SUM) == 0


def test_is_described_rightly(device: str) -> None:
    for size, code in itertools.product([(), (5,), (2, 3)], (NONE, MEAN)):
        errors, total, data_range = gathered(size, device)
        for given in (errors, errors.half(), errors.bfloat16()):
            torch.library.opcheck(psnr_from_errors, (given, total, data_range, 10.0, code))


@pytest.mark.parametrize(
    ("operands", "error", "message"),
    [
        ((torch.ones(3), torch.ones(2), torch.ones(())), RuntimeError, "of shapes that broadcast"),
        ((torch.ones(3), torch.ones(3), torch.ones(2)), ValueError, "to have one element"),
        (
            (torch.ones(3).cfloat(), torch.ones(3), torch.ones(())),
            RuntimeError,
            "`squared_error` to be a tensor of",
        ),
        (
            (torch.ones(3), torch.ones(3), torch.ones(()).cfloat()),
            RuntimeError,
            "`data_range` to be a tensor of",
        ),
    ],
    ids=["shapes", "range", "complex", "complex range"],
)
def test_bad_operands(
    operands: tuple[Tensor, ...], error: type[Exception], message: str, device: str
) -> None:
    for place in (device, "meta"):
        with pytest.raises(error, match=message):
            psnr_from_errors(*(operand.to(place) for operand in operands), 10.0, MEAN)


def test_compiles_whole_for_any_number(device: str) -> None:
    def reduced(errors: Tensor, total: Tensor, data_range: Tensor) -> Tensor:
        return psnr_from_errors(errors * 2, total, data_range, 10.0, MEAN) + 1

    torch._dynamo.reset()
    compiled = torch.compile(reduced, fullgraph=True, dynamic=True, backend="aot_eager")
    with torch._dynamo.config.patch(error_on_recompile=True):
        for count in (7, 9, 30):
            operands = gathered((count,), device)
            assert torch.equal(compiled(*operands), reduced(*operands))


# ---- `compute` of the class.

OPTIONS: list[dict[str, Any]] = [
    {"data_range": 1.0},
    {"data_range": (0, 2), "base": 2},
    {"data_range": 1.0, "dim": (1, 2, 3)},
    {"data_range": 1.0, "dim": (1, 2, 3), "reduction": "sum"},
    {"data_range": 1.0, "dim": 1, "reduction": "none"},
]


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_compute_by_the_formula(options: dict[str, Any], dtype: torch.dtype, device: str) -> None:
    """Of states of any dtype, to which `set_dtype` converts counts and ranges too."""
    metric = PeakSignalNoiseRatio(**options).to(device)
    for seed in range(3):
        metric.update(*image_pair((2, 3, 8, 9), torch.float32, device, seed))
    metric.set_dtype(dtype)
    sums, counts, data_range = metric.sum_squared_error, metric.total, metric.data_range
    if isinstance(sums, list):
        sums, counts = (torch.cat([x.flatten() for x in state]) for state in (sums, counts))
    values = formula(sums, counts, data_range)
    want = in_double(sums, counts, data_range) * math.log(10) / math.log(metric.base)
    if "dim" in options:
        reduction = {"sum": torch.sum, "none": lambda x: x}.get(metric.reduction, torch.mean)
        want = reduction(want)
    got = metric.compute()
    assert got.dtype == values.dtype
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(got.cpu().double(), want, rtol=4 * eps, atol=0)


def test_options_that_change_after_the_first_batch(device: str) -> None:
    """`compute` reads them anew, as TorchMetrics' does."""
    pair = [
        x(1.0, dim=(1, 2, 3)).to(device) for x in (PeakSignalNoiseRatio, tm.PeakSignalNoiseRatio)
    ]
    for metric in pair:
        metric.update(*image_pair((2, 3, 8, 9), torch.float32, device))
        metric.reduction, metric.base = "sum", 2.0
        metric.data_range.fill_(3.0)
    torch.testing.assert_close(pair[0].compute(), pair[1].compute())


@pytest.mark.parametrize("dim", [None, 0])
def test_gradient_through_states(dim: int | None, device: str) -> None:
    gradients = []
    for x in (PeakSignalNoiseRatio, tm.PeakSignalNoiseRatio):
        metric = x(1.0, dim=dim).to(device)
        metric.update(*image_pair((2, 3, 8, 9), torch.float32, device))
        errors = torch.tensor(5.0, device=device, requires_grad=True)
        total = torch.tensor(7, device=device)
        metric.sum_squared_error = errors if dim is None else [errors, 2 * errors]
        metric.total = total if dim is None else [total, total]
        with torch.no_grad():
            assert not metric.compute().requires_grad
        metric._computed = None
        metric.compute().backward()
        gradients.append(errors.grad)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("dim", [None, (1, 2, 3)])
def test_compute_compiles_whole(dim: Any, device: str) -> None:
    metric = PeakSignalNoiseRatio(1.0, dim=dim, compute_with_cache=False).to(device)
    for seed in range(3):
        metric.update(*image_pair((2, 3, 8, 9), torch.float32, device, seed))
    torch._dynamo.reset()
    compiled = torch.compile(metric.compute, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(), metric.compute())


@pytest.mark.needs_cuda
def test_compute_is_captured() -> None:
    metric = PeakSignalNoiseRatio(1.0, compute_with_cache=False).cuda()
    batches = [image_pair((2, 3, 8, 9), torch.float32, "cuda", seed) for seed in range(3)]
    metric.update(*batches[0])
    metric.compute()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = metric.compute()
    for batch in batches:
        metric.update(*batch)
        graph.replay()
        torch.testing.assert_close(value, metric.compute())


@pytest.mark.needs_cuda
@pytest.mark.parametrize(("dim", "launches"), [(None, 1), ((1, 2, 3), 3)])  # each list is joined
def test_launches_of_compute(dim: Any, launches: int) -> None:
    metric = PeakSignalNoiseRatio(1.0, dim=dim, compute_with_cache=False).cuda()
    for seed in range(3):
        metric.update(*image_pair((2, 3, 8, 9), torch.float32, "cuda", seed))
    metric.compute()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        metric.compute()
        torch.cuda.synchronize()
    on_device = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    assert len(on_device) == launches


def test_integers_count_as_float32_whatever_the_default(device: str) -> None:
    numbers = [torch.tensor(x, device=device) for x in ([8, 12], [2, 3], 4)]
    torch.set_default_dtype(torch.float64)
    try:
        value = psnr_from_errors(*numbers, 10.0, 0)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            fakes = [mode.from_tensor(each) for each in numbers]
            assert psnr_from_errors(*fakes, 10.0, 0).dtype == value.dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)
