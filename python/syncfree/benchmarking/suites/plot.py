"""Draws a result file: how much longer every peer takes than syncfree."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syncfree.benchmarking.plot import new_figure, save

OURS = "syncfree"
# Rows of the suite `scaling`, which has a plot of its own.
NOT_BARS = "scaling: "
TIMED = " timed regions"  # these put the same events on the GPU with every timer


def plot_rows(document: Mapping[str, Any], file: Path) -> None:
    """Bars of time over syncfree's, a group per workload, with the median's interval if known.

    Steps of classes and timed regions cost the host and not the GPU, so host times are shown there.

    Args:
        document: A result file.
        file: The file to write; its suffix (``.png``, ``.svg``) decides the format.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    by_workload: dict[str, list[dict[str, Any]]] = {}
    compared = [row for row in document["rows"] if not row["workload"].startswith(NOT_BARS)]
    for row in compared:
        by_workload.setdefault(row["workload"], []).append(row)
    peers = list(dict.fromkeys(r["contender"] for r in compared if r["contender"] != OURS))
    count = sum(map(len, by_workload.values()))
    figure = new_figure(9, 1.5 + 0.22 * count)
    from matplotlib import colormaps

    palette = colormaps["tab10" if len(peers) <= 10 else "tab20"]
    colors = {peer: palette(index) for index, peer in enumerate(peers)}
    axes = figure.subplots()
    place, ticks = 0.0, []
    for name, rows in by_workload.items():
        key = "device_us"
        if "launches" in rows[0] or name.endswith(TIMED):
            looped = all(row.get("loop_host_us") is not None for row in rows)
            key = "loop_host_us" if looped else "host_us"
        ours = next(row[key] for row in rows if row["contender"] == OURS)
        others = [row for row in rows if row["contender"] != OURS]
        ticks.append((place + max(0, len(others) - 1) / 2, name))
        for row in others:
            color = colors[row["contender"]]
            axes.barh(place, row[key] / ours - 1, left=1, color=color, height=0.9)
            interval = row.get("interval_us") if key == "device_us" else None
            if interval:
                axes.plot([each / ours for each in interval], [place, place], color="black")
            place += 1
        place += 1 if others else 2
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks([y for y, _ in ticks], [name for _, name in ticks], fontsize="small")
    axes.margins(y=0.01)
    axes.invert_yaxis()
    axes.set(xscale="log", xlabel="time over syncfree's")
    axes.xaxis.set_major_formatter("{x:g}x")
    axes.xaxis.set_minor_formatter("")
    for peer in peers:
        axes.plot([], [], "s", color=colors[peer], label=peer)
    if peers:
        figure.legend(loc="outside lower center", ncols=min(len(peers), 3))
    hardware = document["hardware"]
    where = hardware["gpu"] if hardware["gpu"] != "none" else hardware["cpu"]
    axes.set_title(f"{where}, torch {document['versions']['torch']}, {document['date']}")
    save(figure, file)
