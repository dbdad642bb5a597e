"""Brings the reports of all processes of a torchrun together on rank 0."""

from __future__ import annotations

import json
import os
from datetime import timedelta

from syncfree.detector.report import Report, merge_ranks, report_from_json
from syncfree.distributed.environment import numeric_variable, variable

# Processes end at different times; after this long the others' findings are reported without.
_PATIENCE = timedelta(seconds=60)


def rank() -> int:
    """This process's number in a torchrun; 0 without one."""
    return _number("RANK", 0) if size() > 1 else 0


def gather(report: Report) -> Report:
    """The report of all ranks on rank 0, and this process's own elsewhere.

    The processes meet in torchrun's own key-value store, so the program's process group may be gone
    already, and nothing waits for a GPU.
    """
    if size() == 1:
        return report
    from torch.distributed import DistStoreError, TCPStore  # type: ignore[attr-defined]

    try:
        numeric_variable("RANK")  # which `rank` takes for 0 where it is none
        store = TCPStore(
            variable("MASTER_ADDR"),
            numeric_variable("MASTER_PORT"),
            is_master=rank() == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
            timeout=_PATIENCE,
        )
        key = f"syncfree/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        if rank() > 0:
            store.set(f"{key}/{rank()}", json.dumps(report.json()))
            # Rank 0 may hold the store, so nobody leaves before it has read.
            store.wait([f"{key}/read"], _PATIENCE)
            return report
        reports = {0: report}
        missing = []
        for other in range(1, size()):
            try:
                reports[other] = report_from_json(store.get(f"{key}/{other}").decode())
            except DistStoreError:
                missing.append(other)
        store.set(f"{key}/read", "1")
    except (DistStoreError, RuntimeError) as error:
        report.note = f"{report.note}; rank {rank()} alone: {error}".lstrip("; ")
        return report
    merged = merge_ranks(reports)
    if missing:
        merged.note = f"{merged.note}; without ranks {missing}, which did not report".lstrip("; ")
    return merged


def size() -> int:
    """How many processes the torchrun has; 1 without one."""
    return _number("WORLD_SIZE", 1)


def _number(name: str, otherwise: int) -> int:
    """Whatever else uses the name, the program's report must not be lost."""
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else otherwise
