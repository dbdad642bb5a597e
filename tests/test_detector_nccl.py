"""Tier 3 with several GPUs: what NCCL makes the host wait for, and what our metrics do not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import syncfree
from processes import in_processes

pytestmark = pytest.mark.needs_two_gpus

SPIN_CYCLES = 400_000_000  # about 0.2 s


def _a_barrier_waits_and_a_reduction_does_not(rank: int, world: int) -> None:
    from syncfree.classification import MulticlassAccuracy
    from syncfree.image import PeakSignalNoiseRatio

    images = torch.rand(4, 3, 64, 64, device="cuda")
    scores = torch.rand(64, 5, device="cuda")
    labels = torch.randint(0, 5, (64,), device="cuda")
    psnr, accuracy = PeakSignalNoiseRatio(1.0).cuda(), MulticlassAccuracy(5).cuda()
    for _ in range(2):  # NCCL connects, kernels load
        psnr(images, images * 0.9)
        accuracy(scores, labels)
        psnr.compute(), accuracy.compute()
        psnr.reset(), accuracy.reset()
        dist.barrier()
    torch.cuda.synchronize()

    with syncfree.detect_syncs(tier=3) as clean:
        total = torch.ones(8, device="cuda")
        dist.all_reduce(total)
        psnr.update(images, images * 0.9)
        accuracy.update(scores, labels)
        psnr.compute(), accuracy.compute()
    assert clean.count == 0, str(clean)
    assert torch.all(total == world)

    torch.cuda.synchronize()
    with syncfree.detect_syncs(tier=3) as report:
        torch.cuda._sleep(SPIN_CYCLES)
        spun = torch.cuda.Event()
        spun.record()
        dist.barrier()  # waits
        waited = spun.query()
    torch.cuda.synchronize()
    found = [each for each in report.findings if each.counts]
    assert (waited, bool(found)) == (True, True), str(report)
    assert all(each.source.endswith("# waits") for each in found), str(report)


def test_a_barrier_waits_and_a_reduction_does_not(tmp_path: Path) -> None:
    in_processes(2, _a_barrier_waits_and_a_reduction_does_not, tmp_path, "nccl")
