"""Brings the reports of all processes of a torchrun together on rank 0."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from syncfree.detector.report import Report, merge_ranks, report_from_json
from syncfree.distributed.environment import numeric_variable, variable

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

# Processes end at different times; those that take longer are left out of the report.
_PATIENCE = timedelta(seconds=60)
_SILENCE = timedelta(seconds=3)  # a longer wait is announced
_TO_CONNECT = timedelta(seconds=60)


def rank() -> int:
    """This process's number in a torchrun; 0 without one."""
    return _number("RANK", 0) if size() > 1 else 0


def gather(report: Report, say: Callable[[str], None]) -> Report:
    """The report of all ranks on rank 0, this process's own elsewhere; `say` announces a wait.

    The processes meet in torchrun's own key-value store, so the program's process group may be gone
    already, and nothing waits for a GPU.
    """
    if size() == 1:
        return report
    from torch.distributed import DistStoreError, TCPStore  # type: ignore[attr-defined]

    try:
        numeric_variable("RANK")  # raises for text that `rank` would take for 0
        store = TCPStore(
            variable("MASTER_ADDR"),
            numeric_variable("MASTER_PORT"),
            is_master=rank() == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
            timeout=_TO_CONNECT,
        )
        key = f"syncfree/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        if rank() > 0:
            store.set(f"{key}/{rank()}", json.dumps(report.json()))
            # Rank 0 may hold the store, so no rank leaves before rank 0 has read its report.
            store.wait([f"{key}/read"], 2 * _PATIENCE)  # rank 0 may come late, and then wait itself
            return report
        reports = {0: report, **dict(_reports_of_others(store, key, say))}
        store.set(f"{key}/read", "1")
    except (DistStoreError, RuntimeError) as error:
        report.note = f"{report.note}; rank {rank()} alone: {error}".lstrip("; ")
        return report
    merged = merge_ranks(reports)
    missing = sorted(set(range(size())) - reports.keys())
    if missing:
        merged.note = f"{merged.note}; without ranks {missing}, which did not report".lstrip("; ")
    return merged


def _reports_of_others(
    store: Store, key: str, say: Callable[[str], None]
) -> Iterator[tuple[int, Report]]:
    """The reports that arrive within `_PATIENCE`, one time limit for all ranks."""
    missing = list(range(1, size()))
    begin = time.monotonic()
    for patience in (_SILENCE, _PATIENCE):
        if patience is _PATIENCE and missing:
            say(
                f"waiting for the reports of ranks {', '.join(map(str, missing))}, "
                f"until {_PATIENCE.total_seconds():g} s have passed"
            )
        end = begin + patience.total_seconds()
        for other in list(missing):
            if _has(store, f"{key}/{other}", end):
                missing.remove(other)
                yield other, report_from_json(store.get(f"{key}/{other}").decode())


def _has(store: Store, key: str, end: float) -> bool:
    """Whether the key is set before that time."""
    from torch.distributed import DistStoreError

    left = end - time.monotonic()
    try:
        if left > 0.0:
            store.wait([key], timedelta(seconds=left))
            return True
    except DistStoreError:
        pass  # the time that was left may be shorter than the way to the store and back
    return store.check([key])


def size() -> int:
    """How many processes the torchrun has; 1 without one."""
    return _number("WORLD_SIZE", 1)


def _number(name: str, otherwise: int) -> int:
    """A number from the environment; other text is ignored, so that no report is lost."""
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else otherwise
