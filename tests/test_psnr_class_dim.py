"""The PSNR class where `dim` keeps results apart: its states are lists that grow by a batch."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torchmetrics.image as tm
from torch import Tensor
from torchmetrics import MetricCollection

from cases import DTYPES, LAYOUTS, Layout, image_pair, range_of
from syncfree._ops.psnr import psnr_with_squared_error
from syncfree.image import PeakSignalNoiseRatio

PER_IMAGE: dict[str, Any] = {"data_range": 1.0, "dim": (1, 2, 3)}
OPTIONS = [
    PER_IMAGE,
    PER_IMAGE | {"reduction": "none"},
    PER_IMAGE | {"data_range": (0.1, 0.8), "base": 2.0, "reduction": "sum"},
    {"data_range": 1.0, "dim": 1, "reduction": "none"},
    {"data_range": 1.0, "dim": [-1, 0], "reduction": None},
    {"data_range": 1.0, "dim": (0, 1, 2, 3), "reduction": "none"},
    {"data_range": 3, "dim": ()},
]
SIZES = (2, 3, 1)


def batches(device: str, dtype: torch.dtype = torch.float32) -> list[tuple[Tensor, Tensor]]:
    pairs = [image_pair((n, 3, 16, 24), dtype, device, seed) for seed, n in enumerate(SIZES)]
    return [(a, b.roll(1, -1)) for a, b in pairs]


def pair_of_metrics(device: str, **options: Any) -> list[tm.PeakSignalNoiseRatio]:
    return [m(**options).to(device) for m in (PeakSignalNoiseRatio, tm.PeakSignalNoiseRatio)]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_values_and_lists_of_torchmetrics(options: dict[str, Any], device: str) -> None:
    ours, theirs = pair_of_metrics(device, **options)
    place = ours.data_range.data_ptr()
    for _ in range(2):
        for i, pair in enumerate(batches(device)):
            if i == 1:
                ours.update(*pair)
                theirs.update(*pair)
            else:
                torch.testing.assert_close(ours(*pair), theirs(*pair))
        for name, state in theirs.metric_state.items():
            torch.testing.assert_close(getattr(ours, name), state)
        torch.testing.assert_close(ours.compute(), theirs.compute())
        ours.reset()
        theirs.reset()
        assert ours.sum_squared_error == ours.total == []
        assert ours.data_range.data_ptr() == place


@pytest.mark.parametrize("reduction", ["none", "elementwise_mean"])
@pytest.mark.parametrize("dim", [(1, 2, 3), (2, 3), 0])
def test_empty_batch(dim: object, reduction: Any, device: str) -> None:
    images = torch.rand(2, 0, 3, 8, 9, device=device)
    ours, theirs = pair_of_metrics(device, data_range=1.0, dim=dim, reduction=reduction)
    torch.testing.assert_close(ours(*images), theirs(*images), equal_nan=True)
    torch.testing.assert_close(ours.sum_squared_error, theirs.sum_squared_error)
    torch.testing.assert_close(ours.total, theirs.total)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_and_layouts(dtype: torch.dtype, layout: Layout, device: str) -> None:
    """Sums in single precision at least: TorchMetrics' own in half overflow from 65,504 on."""
    metric = PeakSignalNoiseRatio(range_of(dtype), dim=(1, 2, 3), reduction="none").to(device)
    for preds, target in batches(device, dtype):
        value = metric(layout.apply(preds), layout.apply(target))
        errors = (preds.double() - target.double()).square().flatten(1)
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        assert value.dtype == metric.sum_squared_error[-1].dtype == wide
        torch.testing.assert_close(metric.sum_squared_error[-1], errors.sum(1).to(wide))
        expected = 10 * torch.log10(range_of(dtype) ** 2 / errors.mean(1)).to(wide)
        torch.testing.assert_close(value, expected.squeeze())


# A result whose elements one thread, one block and several blocks sum, and more of them than a grid
# has blocks.
@pytest.mark.parametrize("shape", [(300, 50), (70000, 3), (5, 4000), (3, 70000)], ids=str)
@pytest.mark.parametrize("reduction", ["none", "elementwise_mean"])
def test_every_way_to_sum(shape: tuple[int, int], reduction: str, device: str) -> None:
    preds = torch.rand(shape, dtype=torch.float64)
    target = torch.rand(shape, dtype=torch.float64)
    metric = PeakSignalNoiseRatio(2.0, dim=1, reduction=reduction).to(device)
    value = metric(preds.to(device), target.to(device))
    errors = (preds - target).square()
    torch.testing.assert_close(metric.sum_squared_error[0].cpu(), errors.sum(1))
    expected = 10 * torch.log10(4 / errors.mean(1))
    torch.testing.assert_close(value.cpu(), expected if reduction == "none" else expected.mean())
    torch.testing.assert_close(metric.compute(), value)


def test_gradient_of_the_batch_value(device: str) -> None:
    preds, target = batches(device)[0]
    gradients = []
    for metric in pair_of_metrics(device, **PER_IMAGE):
        leaf = preds.clone().requires_grad_()
        metric(leaf, target).backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients)


def test_states_hold_no_graph(device: str) -> None:
    preds, target = batches(device)[0]
    metric = PeakSignalNoiseRatio(**PER_IMAGE).to(device)
    assert metric(preds.clone().requires_grad_(), target).requires_grad
    assert not metric.sum_squared_error[0].requires_grad


def test_a_step_leaves_earlier_batches_alone(device: str) -> None:
    """TorchMetrics copies the lists in each `forward`, so that its time grows with them."""
    metric = PeakSignalNoiseRatio(**PER_IMAGE).to(device)
    before: list[int] = []
    for preds, target in batches(device):
        places = id(metric.sum_squared_error), id(metric.total)
        metric(preds, target)
        assert (id(metric.sum_squared_error), id(metric.total)) == places
        now = [x.data_ptr() for x in metric.sum_squared_error]
        assert now[:-1] == before
        before = now


class Halved(PeakSignalNoiseRatio):
    def compute(self) -> Tensor:
        return super().compute() / 2


MEMBERS = {"ours": PeakSignalNoiseRatio, "theirs": tm.PeakSignalNoiseRatio, "half": Halved}


@pytest.mark.parametrize(
    "names",
    [
        ("ours", "theirs"),
        ("theirs", "ours"),
        ("ours", "ours"),
        ("half", "theirs"),
        ("half", "half"),
    ],
    ids=str,
)
def test_in_a_collection(names: tuple[str, str], device: str) -> None:
    """A group shares its lists, but `forward` runs its members one after the other."""
    pairs = [*batches(device), batches(device)[1]]
    for steps in itertools.product(("forward", "update"), repeat=len(pairs)):
        members = {f"{name}-{i}": MEMBERS[name](**PER_IMAGE) for i, name in enumerate(names)}
        collection = MetricCollection(members).to(device)
        alone = tm.PeakSignalNoiseRatio(**PER_IMAGE).to(device)
        for step, pair in zip(steps, pairs, strict=True):
            expected = alone(*pair)
            got = getattr(collection, step)(*pair)
            if step == "forward":
                check(got, expected)
        check(collection.compute(), alone.compute())
        assert "update" not in steps or len(collection.compute_groups) == 1


def check(values: dict[str, Tensor], expected: Tensor) -> None:
    for name, value in values.items():
        torch.testing.assert_close(value, expected / 2 if "half" in name else expected)


@pytest.mark.needs_cuda
def test_never_waits() -> None:
    metric = PeakSignalNoiseRatio(**PER_IMAGE).to("cuda")
    pairs = batches("cuda")
    metric(*pairs[0])
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for pair in pairs:
            metric(*pair)
            metric.update(*pair)
        metric.compute()
        metric.reset()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_op_is_described_rightly(device: str) -> None:
    preds, target = batches(device)[0]
    data_range = torch.tensor(1.0, device=device)
    for reduction in (0, 1):
        for dim in (None, (1, 2, 3), (0,)):
            options = data_range, (0.0, 1.0), 10.0, reduction, dim
            torch.library.opcheck(psnr_with_squared_error, (preds, target, *options))


def test_bad_input_leaves_the_states(device: str) -> None:
    preds, target = batches(device)[0]
    metric = PeakSignalNoiseRatio(**PER_IMAGE).to(device)
    with pytest.raises(RuntimeError, match="same shape"):
        metric.update(preds, target[:1])
    with pytest.raises(IndexError, match=r"range of \[-2, 1\], but got 2"):
        metric.update(preds[0, 0], target[0, 0])
    assert metric.sum_squared_error == metric.total == []
