"""Collects the rows, prints the table and writes the result file."""

from __future__ import annotations

import datetime
import json
import platform
from pathlib import Path

import pytest
import torch

import syncfree

_ROWS: list[dict] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bench-json", metavar="FILE", help="write the table with hardware and versions"
    )


@pytest.fixture
def bench_rows() -> list[dict]:
    return _ROWS


def hardware() -> dict[str, str]:
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return {"cpu": cpu, "threads": str(torch.get_num_threads()), "gpu": gpu}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _ROWS:
        return
    write = terminalreporter.write_line
    write("")
    write(
        f"{'workload':<52} {'contender':<23} {'device us':>10} {'host us':>9} "
        f"{'of floor':>9} {'x ours':>8} {'MiB extra':>9} {'launches':>8}"
    )
    previous = None
    for row in _ROWS:
        name = row["workload"] if row["workload"] != previous else ""
        previous = row["workload"]
        write(
            f"{name:<52} {row['contender']:<23} {row['device_us']:>10.1f} {row['host_us']:>9.1f} "
            f"{row['share_of_floor']:>8.1%} {row['times_ours']:>8.2f} {row['extra_mib']:>9.1f} "
            f"{row.get('launches', ''):>8}"
        )
    path = terminalreporter.config.getoption("--bench-json")
    if path is not None:
        facts = {
            "date": datetime.date.today().isoformat(),
            "hardware": hardware(),
            "versions": syncfree.info()["packages"] | {"syncfree": syncfree.__version__},
            "build": syncfree.info()["build"],
            "rows": _ROWS,
        }
        Path(path).write_text(json.dumps(facts, indent=1) + "\n")
        write(f"written: {path}")
