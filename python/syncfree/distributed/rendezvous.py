"""Meets the processes that the environment names, with time limits and interruptible by Ctrl-C."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch

from syncfree.distributed.channel import Channel
from syncfree.distributed.environment import numeric_variable, variable
from syncfree.errors import RankError

# Its stores are not among the names that torch.distributed shows to type checkers.
_dist: Any = torch.distributed
STORE_TIMEOUT = timedelta(seconds=300)
_NOTE_SECONDS = 10.0
_POLL_SECONDS = 0.05

Note = Callable[[Sequence[int]], None]


def say_nothing(ranks: Sequence[int]) -> None:
    """The default note: a library does not print."""


class Patience:
    """Limits a wait for other ranks, and reports a long one.

    Args:
        seconds: after which they are given up.
        note: called once, after some seconds, with the ranks that are missing then.
    """

    def __init__(self, seconds: float, note: Note = say_nothing) -> None:
        self._seconds = seconds
        self._note = note
        self._noted = False
        self._begin = time.monotonic()

    def spend(self, missing: Sequence[int], reason: str = "did not come") -> None:
        """Check the time; to be called again and again while ranks are missing.

        Raises:
            RankError: the time is up.
        """
        waited = time.monotonic() - self._begin
        if waited > self._seconds:
            raise RankError(dict.fromkeys(missing, f"{reason} within {self._seconds:g} s"))
        if waited > _NOTE_SECONDS and not self._noted:
            self._noted = True
            self._note(missing)


def meet(note: Note = say_nothing) -> tuple[Any, int, int]:
    """The store, rank and number of processes that the variables of `torchrun` name.

    torch's own rendezvous waits silently for half an hour, in C++, where Ctrl-C does not arrive.

    Args:
        note: called once if others do not come within some seconds.

    Raises:
        LauncherError: a variable is not what `torchrun` sets.
        RankError: the others have not come within the time that stores have.
    """
    rank, world = numeric_variable("RANK"), numeric_variable("WORLD_SIZE")
    host, port = variable("MASTER_ADDR"), numeric_variable("MASTER_PORT")
    # An agent, if there is one as with `torchrun`, holds the store and has started all ranks.
    has_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    holds_store = rank == 0 and not has_agent
    patience = Patience(STORE_TIMEOUT.total_seconds(), note)
    while not holds_store and not _is_open(host, port):
        patience.spend([0], f"opened no store at {host}:{port}")
        time.sleep(_POLL_SECONDS)
    store = _dist.TCPStore(
        host,
        port,
        world,
        is_master=holds_store,
        timeout=STORE_TIMEOUT,
        wait_for_workers=False,
        multi_tenant=True,  # so that this process may meet again, or make a process group
    )
    here = Channel(store, "here")
    here.add(str(rank), 1)
    # The process that holds the store waits for all ranks, since the store ends with it.
    others = range(1, world) if holds_store else ()
    while missing := [other for other in others if not here.add(str(other), 0)]:
        patience.spend(missing)
        time.sleep(_POLL_SECONDS)
    return store, rank, world


def _is_open(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=_NOTE_SECONDS).close()
    except OSError:
        return False
    return True
