"""How a comparison is spread over processes, as the command line asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from syncfree.cli.compare.options import LocalUsageError, UsageError
from syncfree.distributed.environment import available_cores
from syncfree.distributed.policy import Schedule

SCHEDULE_NAMES: dict[Schedule, str] = {"dynamic": "dynamic", "equal": "equal", "cost": "pixels"}


@dataclass(frozen=True)
class FleetOptions:
    """Settings of a comparison by several processes.

    Args:
        devices: one process is started for each; none if `torchrun` has started them.
        schedule: how pairs are handed out.
        timeout: seconds without a result after which a process is given up.
        workers: decoding threads of each process; `None` divides the cores of its host.
        journals: folder in which each process records what it has done, and from which results of
            earlier runs are taken.
    """

    devices: tuple[str, ...]
    schedule: Schedule
    timeout: float
    workers: int | None = None
    journals: Path | None = None


def parse_schedule(text: str) -> Schedule:
    """The schedule that `dynamic`, `equal` or `pixels` names.

    Raises:
        UsageError: anything else.
    """
    for schedule, name in SCHEDULE_NAMES.items():
        if name == text:
            return schedule
    raise UsageError(f"schedule is one of {', '.join(SCHEDULE_NAMES.values())}; got {text!r}")


def parse_gpus(text: str) -> tuple[str, ...]:
    """The devices for `all`, a number of GPUs, or `cpu:N` for processes without a GPU.

    Raises:
        UsageError: anything else, more GPUs than there are, or many more processes than cores.

    Example:
        >>> from syncfree.cli.compare.fleet_options import parse_gpus
        >>> parse_gpus("cpu:2")
        ('cpu', 'cpu')
    """
    kind, _, number = text.rpartition(":")
    if kind == "cpu" and number.isdecimal() and int(number) > 0:
        cores = available_cores()
        most = max(8, 2 * cores)
        if int(number) > most:
            raise UsageError(
                f"gpus {text!r} asked for, but {cores} cores serve {most} processes at most: each "
                "loads torch and computes with all threads that it gets"
            )
        return ("cpu",) * int(number)
    if text != "all" and not (text.isdecimal() and int(text) > 0):
        raise UsageError(f"gpus is all, a number of GPUs, or cpu:N; got {text!r}")
    from syncfree.distributed.launcher import local_devices

    found = local_devices()
    wanted = len(found) if text == "all" else int(text)
    if not found or wanted > len(found):
        raise UsageError(
            f"gpus {text!r} asked for, but this PyTorch sees {len(found) or 'none'}; "
            "cpu:N starts N processes without a GPU"
        )
    return tuple(found[:wanted])


def parse_counts(text: str, most: int) -> tuple[int, ...]:
    """The numbers of processes in a text: rising, with commas between.

    Raises:
        UsageError: not numbers, not rising, or more than there are devices.

    Example:
        >>> from syncfree.cli.compare.fleet_options import parse_counts
        >>> parse_counts("1,2,4", most=4)
        (1, 2, 4)
    """
    parts = [part.strip() for part in text.split(",")]
    counts = [int(part) for part in parts if part.isdecimal()]
    if len(counts) < len(parts) or counts != sorted(set(counts)) or counts[0] < 1:
        raise UsageError(f"scaling is rising numbers with commas between, as 1,2,4; got {text!r}")
    if counts[-1] > most:
        raise UsageError(f"scaling up to {counts[-1]} asked for, but --gpus names {most}")
    return tuple(counts)


def torchrun_device(wanted: str) -> str:
    """The device of this process under `torchrun`: a GPU of its own, or the CPU.

    Where one GPU is to be seen, each process may see another one, or all share it.

    Raises:
        UsageError: one GPU named for all.
        LocalUsageError: more local processes than GPUs, of which there are several or none.
    """
    from syncfree.distributed.environment import numeric_variable
    from syncfree.distributed.launcher import local_devices

    if wanted == "cpu":
        return "cpu"
    if wanted not in ("auto", "cuda"):
        raise UsageError(f"under torchrun device is auto, cpu or cuda, got {wanted!r}")
    found = local_devices()
    if not found and wanted == "auto":
        return "cpu"
    local_rank = 0 if len(found) == 1 else numeric_variable("LOCAL_RANK", 0)
    if local_rank >= len(found):
        raise LocalUsageError(
            f"local rank {local_rank} has no GPU of its own, as there are {len(found)}; start "
            "fewer processes, or use --device cpu"
        )
    return found[local_rank]
