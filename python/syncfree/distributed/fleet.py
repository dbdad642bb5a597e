"""The processes that work together, and the store through which they talk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch

from syncfree.distributed.channel import Channel
from syncfree.distributed.environment import numeric_variable, started_by_torchrun
from syncfree.distributed.rendezvous import STORE_TIMEOUT, Note, meet, say_nothing

# Its stores are not among the names that torch.distributed shows to type checkers.
_dist: Any = torch.distributed


@dataclass(frozen=True)
class Fleet:
    """Processes that share a store of `torch.distributed`.

    Only the store is used, never a collective: nothing that one process does can hang another.

    Args:
        store: a `torch.distributed.Store` that all of them reach.
        rank: number of this process, from 0.
        world: number of processes.
        local_rank: number of this process on its host.
    """

    store: Any
    rank: int
    world: int
    local_rank: int = 0

    def next_run(self, kind: str) -> Channel:
        """The channel of the next run of a kind; all ranks begin runs in the same order.

        The store counts the runs, not the process: it may outlive this process, as that of
        `torchrun` does, and the next script of the job would find what this one left there.
        """
        number = Channel(self.store, "runs").add(f"{kind}/{self.rank}", 1)
        return Channel(self.store, f"{kind}/{number}")


def connect(note: Note = say_nothing) -> Fleet:
    """The fleet that this process belongs to.

    That is the default process group if there is one, else the processes that the environment
    variables of `torchrun` name, else this process alone.

    Args:
        note: called once with ranks for which this one has waited for some seconds.

    Raises:
        LauncherError: a variable is not what `torchrun` sets.
        RankError: processes that the variables promise have not come within 300 seconds.
        torch.distributed.DistError: the store cannot be reached.

    Example:
        >>> from syncfree.distributed import connect
        >>> fleet = connect()
        >>> fleet.rank, fleet.world
        (0, 1)
    """
    if _dist.is_available() and _dist.is_initialized():
        # There is no public way to a group's store.
        store = _dist.distributed_c10d._get_default_store()
        return Fleet(_of_this_start(store), _dist.get_rank(), _dist.get_world_size(), _local_rank())
    if started_by_torchrun():
        store, rank, world = meet(note)
        return Fleet(_of_this_start(store), rank, world, _local_rank())
    return Fleet(_dist.HashStore(), 0, 1)


def _local_rank() -> int:
    return numeric_variable("LOCAL_RANK", 0)


def _of_this_start(store: Any) -> Any:
    """The part of a store in which processes that `torchrun` has restarted find nothing old."""
    # The store outlives them: what was handed out before the restart would not be done again.
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return store if restarts == "0" else _dist.PrefixStore(f"restart-{restarts}", store)


def open_store(host: str, port: int | None = None) -> Any:
    """A TCP store: held by this process on a free port, or the one at `port`."""
    return _dist.TCPStore(
        host, port or 0, is_master=port is None, timeout=STORE_TIMEOUT, wait_for_workers=False
    )
