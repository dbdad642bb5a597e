"""Runs a function in several processes of one group."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def in_processes(
    world: int, body: Callable[[int, int], None], directory: Path, backend: str = "gloo"
) -> None:
    """Calls ``body(rank, world)`` in each.

    With NCCL each has a GPU of its own if there are so many; otherwise they share them.
    """
    rendezvous = str(directory / "rendezvous")
    mp.spawn(_process, (world, body, rendezvous, backend), nprocs=world)


def _process(
    rank: int, world: int, body: Callable[[int, int], None], rendezvous: str, backend: str
) -> None:
    torch.set_num_threads(1)
    if backend == "nccl":
        gpus = torch.cuda.device_count()
        torch.cuda.set_device(rank % gpus)
        if world > gpus:
            _be_a_host_of_its_own(rank)
    dist.init_process_group(backend, f"file://{rendezvous}", rank=rank, world_size=world)
    try:
        body(rank, world)
    finally:
        dist.destroy_process_group()


def _be_a_host_of_its_own(rank: int) -> None:
    """NCCL refuses two processes of one host on one GPU, and connects hosts through the network."""
    os.environ.update(NCCL_HOSTID=f"host {rank}", NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")
