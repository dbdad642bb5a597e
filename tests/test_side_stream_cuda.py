"""`on_side_stream` on a GPU: everything is late, so that what is not ordered is wrong."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torchmetrics import Metric

import syncfree
from class_cases import CASES, ClassCase
from metric_contract import check_that_no_call_waits, same_states, same_value
from syncfree.classification import MulticlassAccuracy
from syncfree.image import PeakSignalNoiseRatio, StructuralSimilarityIndexMeasure
from test_side_stream import side_of

pytestmark = pytest.mark.needs_cuda

LONG = 1_000_000_000  # cycles: half a second, in which everything else is over


class Slow(PeakSignalNoiseRatio):
    """The GPU spins before each update."""

    cycles = LONG

    def update(self, preds: Tensor, target: Tensor) -> None:
        torch.cuda._sleep(self.cycles)
        super().update(preds, target)


def images(count: int, level: float) -> tuple[Tensor, Tensor]:
    shape = (count, 3, 64, 64)
    return torch.zeros(shape, device="cuda"), torch.full(shape, level, device="cuda")


def ratio(level: float) -> float:
    return -20 * torch.tensor(level, dtype=torch.float64).log10().item()


def warmed(metric: Any, *batch: Tensor) -> Any:
    """Loads kernels, reserves memory and makes the stream, for which a busy GPU would be waited."""
    metric.cycles = 1
    metric.update(*batch)
    metric.compute()
    metric.reset()
    batch[0].sum()
    del metric.cycles
    spare = [torch.full_like(batch[0], 0.0) for _ in range(12)]
    spare += [torch.zeros((), device="cuda") for _ in range(80)]
    del spare
    torch.cuda.synchronize()
    return metric


def test_the_current_stream_goes_on() -> None:
    batch = images(4, 0.5)
    metric = warmed(syncfree.on_side_stream(Slow(data_range=1.0).to("cuda")), *batch)
    torch.cuda.set_sync_debug_mode("error")
    try:
        metric.update(*batch)
        batch[0].sum()
        here = torch.cuda.Event()
        here.record()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    here.synchronize()
    assert not side_of(metric)._done.query()  # the metric is still spinning
    assert metric.compute().item() == pytest.approx(ratio(0.5), abs=1e-4)
    assert side_of(metric)._done.query()


def test_inputs_that_come_late_are_waited_for() -> None:
    preds, target = images(4, 0.5)
    metric = syncfree.on_side_stream(PeakSignalNoiseRatio(data_range=1.0).to("cuda"))
    warmed(metric, preds, target)
    torch.cuda._sleep(LONG)
    target.fill_(0.1)
    metric.update(preds, target)
    assert metric.compute().item() == pytest.approx(ratio(0.1), abs=1e-4)


def test_memory_of_deleted_inputs_is_not_given_away() -> None:
    batch = images(16, 0.5)
    metric = warmed(syncfree.on_side_stream(Slow(data_range=1.0).to("cuda")), *batch)
    del batch
    gc.collect()
    torch.cuda.synchronize()
    preds, target = images(16, 0.25)
    old = {preds.data_ptr(), target.data_ptr()}
    metric.update(preds, target)
    del preds, target
    fresh = [torch.full((16, 3, 64, 64), 9.0, device="cuda") for _ in range(8)]
    assert old.isdisjoint(each.data_ptr() for each in fresh)
    assert not side_of(metric)._done.query()
    assert metric.compute().item() == pytest.approx(ratio(0.25), abs=1e-4)


@pytest.fixture
def quick_collection() -> Iterator[None]:
    """Of what a test makes: all of a large process takes longer than the GPU is kept busy."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def test_states_outlive_their_metric(quick_collection: None) -> None:
    """A metric that is deleted while its update is under way must not write into others' memory."""
    batch = images(4, 0.5)
    metric = warmed(syncfree.on_side_stream(Slow(data_range=1.0).to("cuda")), *batch)
    old = {state.data_ptr() for state in metric.metric_state.values()}
    metric.cycles = 8 * LONG
    metric.update(*batch)
    done, alive = side_of(metric)._done, weakref.ref(metric)
    del metric
    gc.collect()
    assert alive() is None
    fresh = [torch.zeros((), device="cuda") for _ in range(64)]
    assert old.isdisjoint(each.data_ptr() for each in fresh)
    assert not done.query()
    torch.cuda.synchronize()
    assert not torch.stack(fresh).any()


@pytest.mark.parametrize("copy_inputs", [False, True])
def test_inputs_written_again_need_a_copy(copy_inputs: bool) -> None:
    preds, target = images(4, 0.5)
    metric = syncfree.on_side_stream(Slow(data_range=1.0).to("cuda"), copy_inputs=copy_inputs)
    warmed(metric, preds, target)
    metric.update(preds, target)
    target.fill_(0.1)
    # Without a copy this is the mistake that the docs warn of; it shows that the test can tell.
    expected = ratio(0.5) if copy_inputs else ratio(0.1)
    assert metric.compute().item() == pytest.approx(expected, abs=1e-4)


def test_reset_comes_behind_the_updates() -> None:
    batch = images(4, 0.5)
    metric = warmed(syncfree.on_side_stream(Slow(data_range=1.0).to("cuda")), *batch)
    metric.update(*batch)
    metric.reset()
    metric.update(*images(4, 0.1))
    assert metric.compute().item() == pytest.approx(ratio(0.1), abs=1e-4)
    assert metric.sum_squared_error.item() == pytest.approx(0.01 * 4 * 3 * 64 * 64, rel=1e-4)


def test_a_copy_has_all_updates() -> None:
    batch = images(4, 0.5)
    metric = warmed(syncfree.on_side_stream(Slow(data_range=1.0).to("cuda")), *batch)
    metric.update(*batch)
    other = metric.clone()
    assert other.compute().item() == pytest.approx(ratio(0.5), abs=1e-4)


def test_results_are_for_any_stream() -> None:
    batch = images(4, 0.5)
    metric = warmed(syncfree.on_side_stream(Slow(data_range=1.0).to("cuda")), *batch)
    metric.update(*batch)
    for stream in (torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.current_stream()):
        with torch.cuda.stream(stream):
            metric._computed = None
            assert metric.compute().item() == pytest.approx(ratio(0.5), abs=1e-4)


def test_lists_of_states_are_not_overwritten() -> None:
    """Their memory is the side stream's, and `compute` reads it late on the current one."""
    alone = PeakSignalNoiseRatio(data_range=1.0, dim=(1, 2, 3), reduction="none").to("cuda")
    metric = syncfree.on_side_stream(alone.clone())
    for turn in range(3):
        batches = [images(5, 0.1 * (n + turn + 1)) for n in range(5)]
        for batch in batches:
            metric.update(*batch)
            alone.update(*batch)
        torch.cuda._sleep(LONG // 10)
        value = metric.compute()
        metric.reset()
        for batch in reversed(batches):  # takes the memory that reset has freed
            metric.update(*batch)
        same_value(value, alone.compute())
        metric.reset()
        alone.reset()


def test_a_captured_update_is_replayed() -> None:
    preds, target = images(4, 0.5)
    metric = warmed(syncfree.on_side_stream(PeakSignalNoiseRatio(1.0).to("cuda")), preds, target)
    alone = PeakSignalNoiseRatio(1.0).to("cuda")
    metric.update(preds, target)
    alone.update(preds, target)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        metric.update(preds, target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for level in (0.1, 0.2, 0.3):
            target.fill_(level)
            graph.replay()
            alone.update(preds, target)
            metric.update(preds, target)  # on the current stream now, between replays
            alone.update(preds, target)
            same_value(metric.compute(), alone.compute())
    same_states(metric, alone)


def test_a_captured_compute_reads_all_updates() -> None:
    """Its replay does not wait for the side stream, so updates leave it."""

    class Total(Metric):
        full_state_update = False

        def __init__(self) -> None:
            super().__init__()
            self.add_state("total", torch.zeros(()), "sum")

        def update(self, value: Tensor) -> None:
            torch.cuda._sleep(LONG)
            self.total += value.sum()

        def compute(self) -> Tensor:
            return self.total * 1

    metric = syncfree.on_side_stream(Total().to("cuda"))
    ones = torch.ones(3, device="cuda")
    metric.update(ones)
    assert metric.compute().item() == 3
    metric._computed = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = metric.compute()
    metric.update(ones)
    graph.replay()
    assert value.item() == 6


def test_bad_labels_are_told_of() -> None:
    metric = syncfree.on_side_stream(MulticlassAccuracy(num_classes=3).to("cuda"))
    good = torch.tensor([0, 1, 2], device="cuda")
    metric.update(good, good)
    metric.update(good, good + 1)
    torch.cuda.synchronize()
    with pytest.raises(RuntimeError, match=r"test_side_stream_cuda\.py"):
        metric.compute()
    metric.reset()
    metric.update(good, good)
    assert metric.compute() == 1


def test_a_long_run_beside_other_work() -> None:
    """Allocations of both streams mixed, with nothing kept: any wrong reuse changes the sums."""
    metrics = syncfree.on_side_stream(
        syncfree.MetricCollection(
            [PeakSignalNoiseRatio(data_range=1.0), StructuralSimilarityIndexMeasure(data_range=1.0)]
        ).to("cuda")
    )
    alone = metrics.clone()
    network = torch.nn.Conv2d(3, 3, 3, padding=1).to("cuda")
    generator = torch.Generator("cuda").manual_seed(7)
    held = []
    with torch.no_grad():
        for step in range(40):
            target = torch.rand(2 + step % 5, 3, 96, 80, device="cuda", generator=generator)
            preds = (target + 0.1 * network(target)).clamp(0, 1)
            metrics.update(preds, target)
            held.append((preds.clone(), target.clone()))
            del preds, target
            for _ in range(3):
                network(torch.rand(4, 3, 96, 80, device="cuda"))
        for preds, target in held:
            alone.update(preds, target)
            torch.cuda.synchronize()
    found, expected = metrics.compute(), alone.compute()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_call_waits(case: ClassCase) -> None:
    metric = syncfree.on_side_stream(case.ours(**case.options).to("cuda"))
    check_that_no_call_waits(metric, case.batches("cuda"))


@pytest.mark.needs_two_gpus
def test_a_metric_that_moves_takes_its_stream_along() -> None:
    metric = syncfree.on_side_stream(PeakSignalNoiseRatio(data_range=1.0))
    for device in ("cuda:0", "cuda:1", "cuda:0"):
        metric.to(device)
        metric.update(torch.zeros(4, device=device), torch.full((4,), 0.5, device=device))
        assert side_of(metric)._stream.device == torch.device(device)
    assert metric.compute().item() == pytest.approx(ratio(0.5), abs=1e-4)
