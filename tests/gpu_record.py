"""The record of a run on GPUs: what passed, what failed, what was not reached, of which sources."""

from __future__ import annotations

import datetime
import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
from gpu_status import source_hashes

KINDS = ("passed", "skipped", "failed", "error")
SECONDS = 20.0  # between two states of the record, for a run that is killed leaves the last


class GpuRecord:
    """Writes a file while tests run, in the process that starts them."""

    def __init__(self, file: Path, stats: dict[str, list[Any]]) -> None:
        self._file, self._stats = file, stats
        self._collected, self._written = 0, time.monotonic()
        # As they are now: a file that changes while tests run was not what they ran.
        self._sources = source_hashes()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collected = max(self._collected, len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._collected = len(ids)

    def pytest_runtest_logreport(self) -> None:
        if time.monotonic() - self._written > SECONDS:
            self.write()

    def pytest_sessionfinish(self) -> None:
        # Where nothing ran, what an earlier run found is still the last that is known.
        if any(self._stats.get(kind) for kind in KINDS):
            self.write()

    def write(self) -> None:
        """Replaces the file by what is known now."""
        self._written = time.monotonic()
        count = {kind: len(self._stats.get(kind, [])) for kind in ("passed", "skipped")}
        bad = [r.nodeid for kind in ("failed", "error") for r in self._stats.get(kind, [])]
        failed = sorted(set(bad))
        facts = {
            "date": datetime.date.today().isoformat(),
            "gpu": torch.cuda.get_device_properties(0).name,
            "gpus": torch.cuda.device_count(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "python": platform.python_version(),
            **count,
            "failed": failed,
            "not_reached": max(0, self._collected - sum(count.values()) - len(failed)),
            "sources": self._sources,
        }
        self._file.write_text(json.dumps(facts, indent=1) + "\n")
