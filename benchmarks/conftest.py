"""Collects the rows, prints the table and writes the result file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from syncfree.benchmarking.pytest_plugin import gpu_benchmark  # noqa: F401, where not installed

_ROWS: list[dict] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bench-json", metavar="FILE", help="write the table with hardware and versions"
    )


@pytest.fixture
def bench_rows() -> list[dict]:
    return _ROWS


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _ROWS:
        return
    from syncfree.benchmarking.suites.runner import document

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
        extra = "-" if row["extra_mib"] is None else f"{row['extra_mib']:.1f}"
        write(
            f"{name:<52} {row['contender']:<23} {row['device_us']:>10.1f} {row['host_us']:>9.1f} "
            f"{row['share_of_floor']:>8.1%} {row['times_ours']:>8.2f} {extra:>9} "
            f"{row.get('launches', ''):>8}"
        )
    path = terminalreporter.config.getoption("--bench-json")
    if path is not None:
        Path(path).write_text(json.dumps(document(_ROWS), indent=1) + "\n")
        write(f"written: {path}")
