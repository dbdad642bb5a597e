"""Collects the rows, prints the table and writes the result file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from syncfree.benchmarking.pytest_plugin import gpu_benchmark  # noqa: F401, where not installed

_ROWS: list[dict] = []
_TABLES: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bench-json", metavar="FILE", help="write the table with hardware and versions"
    )


@pytest.fixture
def bench_rows() -> list[dict]:
    return _ROWS


@pytest.fixture
def bench_tables() -> list[str]:
    """Tables to print at the end, because pytest captures the output of tests."""
    return _TABLES


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for table in _TABLES:
        terminalreporter.write_line(f"\n{table}")
    if not _ROWS:
        return
    from syncfree.benchmarking.suites.runner import document
    from syncfree.benchmarking.suites.text import lines_of

    write = terminalreporter.write_line
    write("")
    for line in lines_of(_ROWS):
        write(line)
    path = terminalreporter.config.getoption("--bench-json")
    if path is not None:
        Path(path).write_text(json.dumps(document(_ROWS), indent=1) + "\n")
        write(f"written: {path}")
