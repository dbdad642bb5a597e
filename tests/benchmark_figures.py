"""The committed results of benchmarks, the tool that shows them, and rows for it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What the committed result files were measured with: no workload may be lost.
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))


def figures_tool(name: str = "figure_tables"):
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / "tools"))


def gpu_row(**fields) -> dict:
    """A row of a step of a class on a GPU, in a loop 15.4 us of the host and alone 79 us."""
    row = {
        "workload": "Accuracy.update",
        "device": "cuda",
        "contender": "syncfree",
        "device_us": 10.2,
        "host_us": 79.0,
        "loop_us": 15.5,
        "loop_host_us": 15.4,
        "no_loop": "",
        "share_of_floor": 0.02,
        "times_ours": 1.0,
        "extra_mib": 0.0,
        "launches": 1.0,
    }
    return {**row, **fields}
