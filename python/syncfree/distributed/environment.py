"""What the environment says about processes that work together and their cores, without torch."""

from __future__ import annotations

import os


def started_by_torchrun() -> bool:
    """Whether the environment names a rank, as `torchrun` and other launchers do.

    Example:
        >>> from syncfree.distributed.environment import started_by_torchrun
        >>> started_by_torchrun()
        False
    """
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))


def available_cores() -> int:
    """Number of CPU cores that this process may use.

    Example:
        >>> from syncfree.distributed.environment import available_cores
        >>> available_cores() > 0
        True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
