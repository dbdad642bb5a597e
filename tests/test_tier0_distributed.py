"""Tier 0: programs for several GPUs, in one process with the virtual one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

from syncfree.detector.findings import Finding, Recorder
from syncfree.detector.tier0 import Tier0
from torch_as_before import as_before  # noqa: F401

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="tier 0 stands in for a GPU, and here is a real one"
)


@pytest.fixture(params=["nccl", "cpu:gloo,cuda:nccl", None])
def recorder(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Recorder]:
    """Of a tier with a process group for NCCL, as it is asked for."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # torch puts one there that names ranks
    recorder = Recorder()
    with Tier0(recorder):
        dist.init_process_group(
            request.param, init_method=f"file://{tmp_path}/store", rank=0, world_size=1
        )
        try:
            yield recorder
        finally:
            dist.destroy_process_group()


def waits(recorder: Recorder) -> list[Finding]:
    return [finding for finding in recorder.findings() if finding.waits]


def test_synchronized_batch_norm(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(dist, "get_world_size", lambda group=None: 2)
        layer = nn.SyncBatchNorm(3, device="cuda")
        layer(torch.rand(4, 3, device="cuda")).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.is_cuda
    (found,) = (each for each in waits(recorder) if each.event.direction is None)
    assert (found.event.api, found.count) == ("aten::index", 3)
    assert found.event.reader is not None
    assert found.event.reader.function.endswith("forward")


def test_nccl_groups_run_on_gloo(recorder: Recorder) -> None:
    net = DistributedDataParallel(nn.Linear(3, 2).cuda(), device_ids=[0])
    net(torch.ones(2, 3, device="cuda")).sum().backward()
    total = torch.ones(2, device="cuda")
    dist.all_reduce(total)
    assert total.is_cuda
    assert not waits(recorder)
    dist.barrier()
    assert [(each.event.api, each.count) for each in waits(recorder)] == [
        ("torch.distributed.barrier", 1)
    ]


def whole() -> nn.Module:
    return FullyShardedDataParallel(nn.Linear(3, 2), device_id=torch.cuda.current_device())


def sharded() -> nn.Module:
    net = nn.Linear(3, 2).cuda()
    fully_shard(net)
    return net


@pytest.mark.filterwarnings("ignore:FSDP is switching:UserWarning")
@pytest.mark.parametrize("make", [whole, sharded])
def test_sharded_networks_train(recorder: Recorder, make: Any) -> None:
    net = make()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    before = len(waits(recorder))
    for _ in range(3):
        net(torch.ones(4, 3, device="cuda")).sum().backward()
        optimizer.step()
    assert len(waits(recorder)) == before
    assert all(each.is_cuda for each in net.parameters())


def test_sharded_weights_are_drawn(recorder: Recorder) -> None:
    with torch.device("meta"):
        net = nn.Linear(3, 2)
    fully_shard(net)
    net.to_empty(device="cuda").reset_parameters()
    assert net.weight.is_cuda
    assert net.weight.full_tensor().std() > 0


@pytest.mark.parametrize("rest", [(), (True, False, "spawn")])
def test_one_process_for_each_gpu_is_this_one(rest: tuple[Any, ...]) -> None:
    recorder, seen = Recorder(), []

    def work(rank: int, added: int) -> None:
        total = torch.ones(2, device=rank) + added
        seen.append(total.sum().item())
        sys.exit(0)

    with Tier0(recorder):
        torch.multiprocessing.spawn(work, (2,), torch.cuda.device_count(), *rest)
    assert seen == [6.0]
    assert [each.function.rpartition(".")[2] for each in waits(recorder)] == ["work"]


def test_a_group_stays_behind_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that outlives it would otherwise end gloo's threads, which want Python's lock."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    kept = []
    with Tier0(Recorder()):
        dist.init_process_group(
            "nccl", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
        )
        further = dist.new_group([0], backend="nccl")
        kept += [dist.group.WORLD, further]
        del further
        dist.destroy_process_group()
    # Of the list, the loop and the call, and one that nobody gives back.
    assert [sys.getrefcount(group) for group in kept] == [4, 4]
