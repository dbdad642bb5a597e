"""What `syncfree compare` shows of several processes: progress, and figures of runs long enough."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from syncfree.cli.compare import tables
from syncfree.cli.compare.options import CompareOptions
from syncfree.cli.compare.profile import make_profile
from syncfree.cli.compare.profile_text import print_profile
from syncfree.cli.compare.report import Comparison, ImageRow, ScalingPoint
from syncfree.cli.compare.stages import Spans
from syncfree.cli.compare.tables import (
    FleetProgress,
    print_comparison,
    print_fleet,
    print_scaling,
)
from syncfree.distributed.statistics import RankReport, compare_ranks


@pytest.mark.parametrize(("seconds", "steady"), [(0.25, False), (2.99, False), (3.0, True)])
def test_short_runs_show_no_rates(seconds, steady):
    """Most of one is the first batches of its processes."""
    reports = [
        RankReport(rank, "cuda:0", "GPU", "host", 10, cost, seconds, seconds / 2, seconds / 8)
        for rank, cost in enumerate((1.0, 0.5))
    ]
    comparison = Comparison(
        reference="a",
        test="b",
        options=CompareOptions(metrics=("psnr",)),
        device="cuda:0,cuda:1",
        device_name="2 x GPU",
        rows=[ImageRow("a.png", "a/a.png", "b/a.png", 100, 100, "rgb", 255.0, 30.0, 0.9, 1.0)],
        problems=[],
        seconds=seconds,
        fleet=compare_ranks(reports, seconds, schedule="dynamic"),
        scaling=(ScalingPoint(1, 8.0, 1, 1, 0), ScalingPoint(2, seconds, 1.5, 0.75, 0)),
    )
    console = Console(file=io.StringIO(), width=1000)
    print_comparison(console, comparison, show_all=True)
    print_fleet(console, comparison.fleet)
    print_scaling(console, comparison.scaling)
    shown = console.file.getvalue()
    assert "1 image, 0.01 megapixels in" in shown
    for figure in (
        "images/s",
        " 50% ",
        " 25% ",
        " 0.50 ",
        "straggler: device",
        "efficiency 100.0%",
    ):
        assert (figure in shown) == steady, figure
    assert ("too short to judge" in shown) == (not steady)
    assert ("say little of scaling" in shown) == (not steady)
    # Without processes the one process's figure stays.
    comparison.fleet = None
    print_comparison(console, comparison, show_all=True)
    assert "images/s" in console.file.getvalue()


@pytest.mark.parametrize("width", [30, 55, 80])
def test_narrow_terminals_get_every_digit_and_name(width):
    rows = [
        ImageRow(f"{name}.png", "", "", 4000, 3000, "rgb", 255.0, 31.234, 0.87654, 4.3916)
        for name in ("short", "a_much_longer_name_of_a_picture")
    ]
    comparison = Comparison(
        reference="a",
        test="b",
        options=CompareOptions(),
        device="cpu",
        device_name="CPU",
        rows=rows,
        problems=[],
        seconds=9.0,
    )
    spans = Spans()
    spans.add(0.0, 1.125)
    profile = make_profile(
        {"decode": spans}, begin=0.0, end=9.0, threads=2, streams=0, dtype=None, reuse=(), notes=[]
    )
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=width)
    print_comparison(console, comparison, show_all=True)
    print_profile(console, profile)
    shown = console.file.getvalue()
    for text in ("short.png", "PSNR (dB)", "31.234", "0.87654", "4.3916", "4000x3000 rgb"):
        assert text in shown
    for text in ("decode", "1.125", "12%", "absent:"):
        assert text in shown
    assert "…" not in shown


def test_progress_of_all_processes_and_of_each(monkeypatch):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    monkeypatch.setattr(tables, "make_console", lambda *, stderr: console)
    with FleetProgress(total=4, world=2) as progress:
        for rank in (0, 1, 1):
            progress.advance(rank)
    shown = re.sub(r"\x1b\[[\d;?]*\w", "", screen.getvalue())
    bars = re.findall(r"(all|rank \d) .*? (\d)/4 ", shown)
    assert bars[-3:] == [("all", "3"), ("rank 0", "1"), ("rank 1", "2")]
