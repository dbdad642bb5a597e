"""The plot of `scaling.py`: what more processes gain, and how busy each of them was."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def draw(facts: dict[str, Any], path: Path) -> None:
    """Plots images per second against processes, and busy times for the largest count."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    rows, counts = facts["rows"], sorted({row["processes"] for row in facts["rows"]})
    first = rows[0]["images_per_second"] / rows[0]["processes"]
    left.plot(counts, [first * count for count in counts], "--", color="gray", label="ideal")
    for schedule in dict.fromkeys(row["schedule"] for row in rows):
        # Each line begins with the row of one process.
        drawn = [row for row in rows if row["schedule"] == schedule or row is rows[0]]
        rates = [row["images_per_second"] for row in drawn]
        left.plot([row["processes"] for row in drawn], rates, "o-", label=schedule)
    left.set(xlabel="processes", ylabel="images/s", xticks=counts, ylim=(0, None))
    left.legend()
    bars: dict[str, tuple[float, float]] = {}
    for row in rows:
        for number, rank in enumerate(row["ranks"] if row["processes"] == counts[-1] else ()):
            busy = rank["busy_seconds"]
            bars[f"{row['schedule']} {number}"] = busy, max(0.0, row["seconds"] - busy)
    names, (busy, idle) = list(bars), zip(*bars.values(), strict=True)
    right.barh(names, busy, color="#2b6a99", label="busy")
    right.barh(names, idle, left=busy, color="#e6e6e6", label="idle")
    right.set(xlabel="seconds")
    right.invert_yaxis()
    right.legend()
    figure.savefig(path)
