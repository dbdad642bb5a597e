"""Who uses which GPU of a parallel run, and when: some beside others, those that time one alone."""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

Item = TypeVar("Item")


@contextmanager
def turn(folder: Path, gpus: Iterable[str], *, alone: bool) -> Iterator[None]:
    """Waits until nobody has these GPUs alone and, to be alone, until nobody has them at all.

    Who waits to be alone holds a gate that all pass first: the others, of which there are always
    some, would keep it waiting to the end of the run. All take GPUs in one order, so none waits in
    a circle.

    Args:
        folder: Of the locks, one for all processes of a run.
        gpus: Which, by names that mean the same in all processes.
        alone: Whether nobody else may use them meanwhile.
    """
    folder.mkdir(exist_ok=True)
    with ExitStack() as held:
        for gpu in sorted(gpus):
            lock = held.enter_context((folder / f"{gpu}.lock").open("w"))
            with (folder / f"{gpu}.gate").open("w") as gate:
                fcntl.flock(gate, fcntl.LOCK_EX)
                fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def in_shares(first: Sequence[Item], later: Sequence[Item], processes: int) -> list[Item]:
    """An order that, cut into equal shares, has a part of `first` at the beginning of each."""
    return [
        each
        for i in range(processes)
        for kind in (first, later)
        for each in kind[len(kind) * i // processes : len(kind) * (i + 1) // processes]
    ]
