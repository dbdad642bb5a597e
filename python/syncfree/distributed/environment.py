"""What the environment says about processes that work together; known without torch."""

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
