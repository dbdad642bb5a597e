"""Rows of a result file as a table of plain text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syncfree.benchmarking.text import IN_A_LOOP, SINGLE

# There are two host times, and one is several times the other, so each head says which it is.
HEADS = (
    ("workload", "contender", "device us", "host us", "host us", "of floor", "x ours", "MiB", ""),
    ("", "", "", "in a loop", "1 call", "", "", "extra", "launches"),
)
WIDTHS = (52, 23, 10, 10, 9, 9, 8, 9, 8)
MARK = "*"


def lines_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Two lines of heads, a line per row, and a legend that says why some figures are missing.

    Args:
        rows: Rows from :func:`~syncfree.benchmarking.suites.runner.rows_of`.
    """
    lines = [_line(head) for head in HEADS]
    previous = None
    for row in rows:
        name = row["workload"] if row["workload"] != previous else ""
        previous = row["workload"]
        on_gpu, extra = row["device"] == "cuda", row["extra_mib"]
        lines.append(
            _line(
                (
                    name,
                    row["contender"],
                    f"{row['device_us']:.1f}",
                    _looped(row),
                    f"{row['host_us']:.1f}" if on_gpu else "-",
                    f"{row['share_of_floor']:.1%}",
                    f"{row['times_ours']:.2f}",
                    "-" if extra is None else f"{extra:.1f}",
                    f"{row['launches']:g}" if "launches" in row else "",
                )
            )
        )
    return [*lines, "", *_legend(rows)]


def _looped(row: dict[str, Any]) -> str:
    """The host time in a loop; marked if there is none, or if a setup was between the calls."""
    known = "-" if row["loop_host_us"] is None else f"{row['loop_host_us']:.1f}"
    return known + (MARK if row["no_loop"] and row["device"] == "cuda" else "")


def _legend(rows: Sequence[dict[str, Any]]) -> list[str]:
    on_gpu = [row for row in rows if row["device"] == "cuda"]
    lines = []
    if on_gpu:
        lines += [
            "device us: of a call between GPU events, behind a gate unless it waits for the GPU",
            f"host us in a loop: {IN_A_LOOP}",
            f"host us, 1 call: {SINGLE}",
        ]
    if len(on_gpu) < len(rows):
        lines.append("device us of the CPU: by its clock; the host's time is the same")
    reasons = dict.fromkeys(row["no_loop"] for row in on_gpu if row["no_loop"])
    return [*lines, *(f"{MARK} {reason}" for reason in reasons)]


def _line(cells: Sequence[str]) -> str:
    left, right = cells[:2], cells[2:]
    texts = [f"{cell:<{width}}" for cell, width in zip(left, WIDTHS, strict=False)]
    texts += [f"{cell:>{width}}" for cell, width in zip(right, WIDTHS[2:], strict=True)]
    return " ".join(texts).rstrip()
