"""Runs a function in several processes of one group."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def in_processes(
    world: int, body: Callable[[int, int], None], directory: Path, backend: str = "gloo"
) -> None:
    """Calls ``body(rank, world)`` in each; with NCCL each has a GPU of its own."""
    rendezvous = str(directory / "rendezvous")
    mp.spawn(_process, (world, body, rendezvous, backend), nprocs=world)


def _process(
    rank: int, world: int, body: Callable[[int, int], None], rendezvous: str, backend: str
) -> None:
    torch.set_num_threads(1)
    if backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, f"file://{rendezvous}", rank=rank, world_size=world)
    try:
        body(rank, world)
    finally:
        dist.destroy_process_group()
