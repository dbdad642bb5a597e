"""Classes under NCCL: the answers of one process, and proof that no host waits for a GPU.

Where there are fewer GPUs than processes, these share them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torchmetrics import Metric, MetricCollection

import collection_cases
from class_cases import CASES, ClassCase
from processes import in_processes

pytestmark = [pytest.mark.needs_cuda, pytest.mark.alone, pytest.mark.all_gpus]

SPIN_CYCLES = 400_000_000  # about 0.2 s: far longer than any host call here takes


def waits(call: Callable[[], object]) -> bool:
    """Whether a call returns only when work that was queued on the GPU before it is done."""
    for _ in range(2):  # NCCL connects, kernels load
        call()
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    torch.cuda._sleep(SPIN_CYCLES)
    spun = torch.cuda.Event()
    spun.record()
    call()
    waited = spun.query()
    torch.cuda.synchronize()
    return waited


def computing(metric: Metric) -> Callable[[], object]:
    def compute() -> object:
        metric._computed = None
        return metric.compute()

    return compute


def computing_all(collection: MetricCollection) -> Callable[[], object]:
    def compute() -> object:
        for metric in collection._modules.values():
            metric._computed = None
        return collection.compute()

    return compute


def parts(case: ClassCase, rank: int, world: int) -> list:
    return [batch for seed in range(rank, 4 * world, world) for batch in case.batches("cuda", seed)]


def _no_host_waits(rank: int, world: int) -> None:
    for case in CASES:
        ours, theirs = case.pair("cuda")
        for batch in parts(case, rank, world):
            ours.update(*batch)
            theirs.update(*batch)
        # Lengths of lists have to be exchanged: the one documented wait.
        assert waits(computing(ours)) == case.has_lists, case
        assert waits(computing(theirs)), case  # or the proof proves nothing
        alone = case.ours(**case.options, sync_on_compute=False).to("cuda")
        for other in range(world):
            for batch in parts(case, other, world):
                alone.update(*batch)
        want, values = alone.compute(), [ours.compute(), theirs.compute()]
        torch.testing.assert_close(values[0], want, rtol=1e-6, atol=1e-7)
        if None in ours._reductions.values():  # TorchMetrics mixes the processes' images
            want, values[1] = want.sort().values, values[1].sort().values
        torch.testing.assert_close(values[1], want, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("world", [2, 4])
def test_no_host_waits(world: int, tmp_path: Path) -> None:
    in_processes(world, _no_host_waits, tmp_path, "nccl")


def _collections_wait_as_little(rank: int, world: int) -> None:
    """Ours with TorchMetrics' F1, precision and specificity: one reduction for them all."""
    ours, theirs = collection_cases.make("multiclass", "cuda")
    alone, _ = collection_cases.make("multiclass", "cuda")
    for metric in alone._modules.values():
        metric.sync_on_compute = metric._to_sync = False
    for seed in range(3 * world):
        batch = collection_cases.scores("cuda", seed)
        alone.update(*batch)
        if seed % world == rank:
            ours.update(*batch)
            theirs.update(*batch)
    assert not waits(computing_all(ours))
    assert waits(computing_all(theirs))
    collection_cases.same(ours.compute(), alone.compute())
    collection_cases.same(theirs.compute(), alone.compute())


@pytest.mark.parametrize("world", [2, 4])
def test_collections_wait_as_little(world: int, tmp_path: Path) -> None:
    in_processes(world, _collections_wait_as_little, tmp_path, "nccl")


def _one_process_meets_a_bad_label(rank: int, world: int) -> None:
    """Its error comes after the collective is queued, so that no process waits for ever."""
    from syncfree.classification import MulticlassAccuracy

    metric = MulticlassAccuracy(3).cuda()
    labels = torch.tensor([0, 1, 2], device="cuda")
    metric.update(labels, labels)
    metric.update(labels, labels + (7 if rank == 1 else 0))
    torch.cuda.synchronize()
    if rank == 1:
        with pytest.raises(RuntimeError, match="7 at flat index 0, the first of 3"):
            metric.compute()
    else:
        assert metric.compute().isnan()
    assert metric.compute().isnan()  # the value from before, in each process
    dist.barrier()
    metric.reset()
    metric.update(labels, labels)
    assert metric.compute() == 1


def test_one_process_meets_a_bad_label(tmp_path: Path) -> None:
    in_processes(2, _one_process_meets_a_bad_label, tmp_path, "nccl")
