"""The PSNR class beside TorchMetrics' on the same stream of batches."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest
import torch
import torchmetrics.image as tm
from torchmetrics import MetricCollection

from cases import DTYPES, image_pair
from syncfree.image import PeakSignalNoiseRatio

ARGUMENTS = [
    {"data_range": 1.0},
    {"data_range": 3},
    {"data_range": (0.1, 0.8)},
    {"data_range": 1.0, "base": 2.0},
    {"data_range": 1.0, "dim": (1, 2, 3), "reduction": "none"},
    {"data_range": 1.0, "dim": 1, "reduction": "sum"},
]


def batches(device: str, dtype: torch.dtype = torch.float32) -> list:
    shapes = [(2, 3, 16, 16), (2, 3, 16, 16), (1, 3, 16, 16)]
    pairs = [image_pair(shape, dtype, device) for shape in shapes]
    return [(a, b.roll(i, -1)) for i, (a, b) in enumerate(pairs)]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_same_values_and_states_as_torchmetrics(arguments: dict, device: str) -> None:
    ours = PeakSignalNoiseRatio(**arguments).to(device)
    theirs = tm.PeakSignalNoiseRatio(**arguments).to(device)
    assert isinstance(ours, tm.PeakSignalNoiseRatio)
    for round_ in range(2):
        for i, (preds, target) in enumerate(batches(device)):
            if i == 1:
                ours.update(preds, target)
                theirs.update(preds, target)
            else:
                torch.testing.assert_close(ours(preds, target), theirs(preds, target))
            assert ours.update_count == theirs.update_count
        for name, state in theirs.metric_state.items():
            torch.testing.assert_close(getattr(ours, name), state)
        torch.testing.assert_close(ours.compute(), theirs.compute())
        assert ours.compute() is ours.compute(), round_
        ours.reset()
        theirs.reset()
        for name, state in theirs.metric_state.items():
            torch.testing.assert_close(getattr(ours, name), state)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(dtype: torch.dtype, device: str) -> None:
    ours = PeakSignalNoiseRatio(255.0 if dtype == torch.uint8 else 1.0).to(device)
    exact = tm.PeakSignalNoiseRatio(255.0 if dtype == torch.uint8 else 1.0).to(device)
    exact.set_dtype(torch.float64)
    for preds, target in batches(device, dtype):
        ours.update(preds, target)
        exact.update(preds.double(), target.double())
    assert ours.compute().dtype == torch.float32
    torch.testing.assert_close(ours.compute().double(), exact.compute())


def test_storage_stays_put(device: str) -> None:
    metric = PeakSignalNoiseRatio(1.0).to(device)
    places = [state.data_ptr() for state in metric.metric_state.values()]
    for step in (metric, metric.update):
        for preds, target in batches(device):
            step(preds, target)
        metric.compute()
        metric.reset()
    with torch.inference_mode():
        metric.reset()
    metric.update(*batches(device)[0])
    assert [state.data_ptr() for state in metric.metric_state.values()] == places


def test_gradient_of_the_batch_value(device: str) -> None:
    preds, target = batches(device)[0]
    ours, theirs = (x(1.0).to(device) for x in (PeakSignalNoiseRatio, tm.PeakSignalNoiseRatio))
    gradients = []
    for metric in (ours, theirs):
        leaf = preds.clone().requires_grad_()
        metric(leaf, target).backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients)
    torch.testing.assert_close(ours.compute(), theirs.compute())


class Halved(PeakSignalNoiseRatio):
    def compute(self) -> torch.Tensor:
        return super().compute() / 2


class Brightened(PeakSignalNoiseRatio):
    def update(self, preds: torch.Tensor, target: torch.Tensor) -> None:
        super().update(preds + 0.1, target)


def test_subclasses_are_heeded(device: str) -> None:
    preds, target = batches(device)[0]
    plain = PeakSignalNoiseRatio(1.0).to(device)
    halved, brightened = Halved(1.0).to(device), Brightened(1.0).to(device)
    for _ in range(2):
        torch.testing.assert_close(halved(preds, target), plain(preds, target) / 2)
        torch.testing.assert_close(brightened(preds, target), plain(preds + 0.1, target))
    assert halved.update_count == brightened.update_count == 2
    alone = PeakSignalNoiseRatio(1.0).to(device)
    for _ in range(2):
        alone.update(preds + 0.1, target)
    torch.testing.assert_close(brightened.compute(), alone.compute())


def test_copies_and_pickles(device: str) -> None:
    metric = PeakSignalNoiseRatio(1.0).to(device)
    metric.update(*batches(device)[0])
    for other in (copy.deepcopy(metric), pickle.loads(pickle.dumps(metric)), metric.clone()):
        torch.testing.assert_close(other.compute(), metric.compute())
        other.update(*batches(device)[1])
        assert (other.update_count, metric.update_count) == (2, 1)


def test_state_dict_both_ways(device: str) -> None:
    ours, theirs = (x(1.0).to(device) for x in (PeakSignalNoiseRatio, tm.PeakSignalNoiseRatio))
    for metric in (ours, theirs):
        metric.persistent(True)
        metric.update(*batches(device)[0])
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for source, copy_to in ((ours, tm.PeakSignalNoiseRatio), (theirs, PeakSignalNoiseRatio)):
        loaded = copy_to(1.0).to(device)
        loaded.persistent(True)
        loaded.load_state_dict(source.state_dict())
        torch.testing.assert_close(loaded.sum_squared_error, ours.sum_squared_error)


def test_in_a_collection_with_torchmetrics(device: str) -> None:
    """Both end in one compute group, whose members share their states."""
    collection = MetricCollection(
        {"ours": PeakSignalNoiseRatio(1.0), "theirs": tm.PeakSignalNoiseRatio(1.0)}
    ).to(device)
    alone = tm.PeakSignalNoiseRatio(1.0).to(device)
    for i, (preds, target) in enumerate(batches(device) * 2):
        alone.update(preds, target)
        if i % 2:
            collection(preds, target)
        else:
            collection.update(preds, target)
        for value in collection.compute().values():
            torch.testing.assert_close(value, alone.compute())
    assert len(collection.compute_groups) == 1


@pytest.mark.skipif(
    not hasattr(tm.PeakSignalNoiseRatio, "merge_state"), reason="TorchMetrics before 1.6 has none"
)
def test_merge_state(device: str) -> None:
    one, two, both = (PeakSignalNoiseRatio(1.0).to(device) for _ in range(3))
    (a, b), (c, d) = batches(device)[:2]
    one.update(a, b)
    two.update(c, d)
    before = two.sum_squared_error.clone()
    both.update(a, b)
    both.update(c, d)
    one.merge_state(two)
    torch.testing.assert_close(one.sum_squared_error, both.sum_squared_error)
    assert torch.equal(two.sum_squared_error, before)
    # The range is no mean over updates, of which a new metric has none.
    empty = PeakSignalNoiseRatio(1.0).to(device)
    empty.merge_state(one)
    torch.testing.assert_close(empty.compute(), both.compute())


def test_without_torchmetrics_the_extra_is_named() -> None:
    code = "import sys; sys.modules['torchmetrics'] = None; import syncfree.image"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'syncfree[torchmetrics]'" in done.stderr.splitlines()[-1]


def test_gradients_of_subclasses(device: str) -> None:
    """Their `compute` is differentiated, and nothing of it stays in the states."""
    preds, target = batches(device)[0]
    for options in ({}, {"dim": (1, 2, 3)}, {"dist_sync_on_step": True}):
        gradients = []
        for base in (PeakSignalNoiseRatio, tm.PeakSignalNoiseRatio):
            halved = {"compute": lambda self, base=base: base.compute(self) / 2}
            metric = type("Own", (base,), halved)(1.0, **options).to(device)
            for _ in range(2):
                leaf = preds.clone().requires_grad_()
                metric(leaf, target).backward()
            gradients.append(leaf.grad)
            states = metric.sum_squared_error
            for state in states if isinstance(states, list) else [states]:
                assert base is not PeakSignalNoiseRatio or not state.requires_grad
        torch.testing.assert_close(*gradients)


def test_update_keeps_no_graph(device: str) -> None:
    preds, target = batches(device)[0]
    for dim in (None, (1, 2, 3)):
        metric = PeakSignalNoiseRatio(1.0, dim=dim).to(device)
        metric.update(preds.clone().requires_grad_(), target)
        metric(preds.clone().requires_grad_(), target)
        assert not metric.compute().requires_grad


@pytest.mark.parametrize("dim", [None, (1, 2, 3)])
def test_loaded_range(dim: object, device: str) -> None:
    """Of a checkpoint made with another one, with and without a gradient."""
    preds, target = (x * 255 for x in batches(device)[0])
    saved = tm.PeakSignalNoiseRatio(255.0, dim=dim).to(device)
    saved.persistent(True)
    metric = PeakSignalNoiseRatio(1.0, dim=dim).to(device)
    metric.persistent(True)
    metric.load_state_dict(saved.state_dict())
    # TorchMetrics takes the batch's value with the range of the constructor, the total with this.
    want = tm.PeakSignalNoiseRatio(255.0, dim=dim).to(device)(preds, target)
    torch.testing.assert_close(metric(preds, target), want)
    value = metric(preds.clone().requires_grad_(), target)
    torch.testing.assert_close(value.detach(), want)
    assert value.requires_grad


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"data_range": -1.0}, ValueError, "`data_range` to be positive"),
        ({"data_range": (1.0, 0.0)}, ValueError, "low < high"),
        ({"data_range": None}, TypeError, "`data_range` to be a number"),
        ({"data_range": 1.0, "base": 1}, ValueError, "`base` to be positive and not 1"),
        ({"data_range": 1.0, "reduction": "mean"}, ValueError, "`reduction` to be one of"),
    ],
)
def test_bad_arguments(arguments: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        PeakSignalNoiseRatio(**arguments)


def test_bad_inputs_change_nothing(device: str) -> None:
    for dim in (None, 1):
        metric = PeakSignalNoiseRatio(1.0, dim=dim).to(device)
        metric.update(*batches(device)[0])
        for call in (metric, metric.update):
            with pytest.raises(RuntimeError, match="the same shape"):
                call(torch.zeros(4, 8, device=device), torch.zeros(1, 8, device=device))
        assert metric.update_count == 1
