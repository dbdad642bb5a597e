"""Reads what the environment says about cooperating processes and their cores, without torch."""

from __future__ import annotations

import os
from contextlib import suppress

from syncfree.errors import LauncherError

_ALONE = "Unset RANK and WORLD_SIZE for a process that runs alone."


def started_by_torchrun() -> bool:
    """Whether the environment names a rank, as `torchrun` and other launchers do.

    Example:
        >>> from syncfree.distributed.environment import started_by_torchrun
        >>> started_by_torchrun()
        False
    """
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))


def variable(name: str) -> str:
    """The value of an environment variable that a launcher sets.

    Raises:
        LauncherError: It is not set.

    Example:
        >>> import os
        >>> from syncfree.distributed.environment import variable
        >>> os.environ["EXAMPLE_HOST"] = "localhost"
        >>> variable("EXAMPLE_HOST")
        'localhost'
    """
    if name not in os.environ:
        raise LauncherError(f"{name} is not set, as `torchrun` sets it. {_ALONE}")
    return os.environ[name]


def numeric_variable(name: str, otherwise: int | None = None) -> int:
    """The number in such a variable; checked, because other programs use these names too.

    Args:
        name: The variable's name.
        otherwise: The number if it is not set; ``None`` if it has to be set.

    Raises:
        LauncherError: It is not set, or not set to a number.

    Example:
        >>> import os
        >>> from syncfree.distributed.environment import numeric_variable
        >>> os.environ["EXAMPLE_PORT"] = "29500"
        >>> numeric_variable("EXAMPLE_PORT")
        29500
    """
    if otherwise is not None and name not in os.environ:
        return otherwise
    text = variable(name)
    if not text.isdecimal():
        raise LauncherError(f"{name} is {text!r}, but a number was expected. {_ALONE}")
    return int(text)


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


def cores_of_each(processes: int) -> int:
    """Number of CPU cores for each of the processes that the parent of this one started.

    They share the parent's cores, unless a launcher has bound this process to cores of its own.

    Example:
        >>> from syncfree.distributed.environment import cores_of_each
        >>> cores_of_each(1) > 0
        True
    """
    own = available_cores()
    shared = own
    if hasattr(os, "sched_getaffinity"):
        with suppress(OSError):  # the parent has ended
            shared = max(own, len(os.sched_getaffinity(os.getppid())))
    return max(1, min(own, shared // processes))
