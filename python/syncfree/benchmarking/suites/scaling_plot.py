"""Draws how the time grows with the work, beside the limit by the memory's bandwidth."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syncfree.benchmarking.plot import new_figure, save
from syncfree.benchmarking.suites.scaling import PREFIX


def plot_scaling(document: Mapping[str, Any], file: Path) -> None:
    """Time against the time that reading the input takes, for each series of the suite `scaling`.

    A series that, above the cost of a launch, is parallel to the dashed line is linear in bytes.

    Args:
        document: A result file with rows of the suite.
        file: The file to write; its suffix (``.png``, ``.svg``) decides the format.

    Raises:
        MissingExtraError: matplotlib is not installed.
        ValueError: There are no such rows.
    """
    series: dict[str, list[tuple[float, float]]] = {}
    for row in document["rows"]:
        if row["workload"].startswith(PREFIX):
            name = row["workload"].removeprefix(PREFIX).partition(",")[0]
            series.setdefault(name, []).append((row["read_floor_us"], row["device_us"]))
    if not series:
        raise ValueError("expected rows of the suite scaling, but the document has none")
    figure = new_figure(8, 5)
    axes = figure.subplots()
    for name, points in series.items():
        axes.plot(*zip(*sorted(points), strict=True), ".-", label=name)
    floors = [floor for points in series.values() for floor, _ in points]
    ends = [min(floors), max(floors)]
    axes.plot(ends, ends, "--", color="black", linewidth=0.8, label="read once, nothing else")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="microseconds that reading the input takes",
        ylabel="microseconds of a call on the device",
    )
    axes.legend(fontsize="small")
    hardware = document["hardware"]
    where = hardware["gpu"] if hardware["gpu"] != "none" else hardware["cpu"]
    axes.set_title(f"{where}, torch {document['versions']['torch']}, {document['date']}")
    save(figure, file)
