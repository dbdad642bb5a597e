"""The experiment that decides on `keep_warm`: its verdicts on figures that are made up."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from keep_warm import KeepWarm, Run, decide, table
from syncfree.benchmarking.gap_verdict import GapPoint
from syncfree.benchmarking.gaps import IdleGap

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "benchmarks" / "keep_warm.py"


def run(name: str, plain: tuple[float, float, float], **options: float) -> Run:
    """First calls back to back, after 0.1 s and after 1 s."""
    points = tuple(
        GapPoint(gap, us, 1.0, us, 90.0, 1980.0, 0.0, 3)
        for gap, us in zip((0.0, 0.1, 1.0), plain, strict=True)
    )
    return Run(name, points, **options)


BEFORE, AFTER = run("before", (150, 400, 550), watts=120.0), run("after", (155, 390, 540))


@pytest.mark.parametrize(
    ("warm", "host", "verdict"),
    [
        ((150, 200, 210), (150, 400, 545), "yes, after gaps of 0.1, 1 s"),
        ((150, 380, 210), (150, 400, 545), "yes, after gaps of 1 s"),
        ((150, 200, 210), (150, 220, 230), "the host, not the GPU"),
        ((150, 400, 500), (150, 400, 545), "no: after 1 s a call takes 500 us instead of 550"),
        ((150, 200, 545), (150, 400, 545), "no: after 1 s"),
        ((170, 200, 210), (150, 400, 545), "no: calls back to back take 1.10 times as long"),
    ],
)
def test_what_follows(warm, host, verdict: str) -> None:
    spun = run("spins", warm, gpu_share=0.02, watts=135.0)
    found = decide([BEFORE, AFTER], spun, run("host", host))
    assert found.startswith(verdict)
    assert "2.00% of the time and draws +15 W" in found


def test_the_table_has_every_gap() -> None:
    shown = table({"before": BEFORE, "after": AFTER}).splitlines()
    assert len(shown) == 1 + 2 * 4
    assert shown[1].split() == ["before", "0", "150", "90", "150", "1980"]


def test_a_keeper_can_be_paused_and_ends() -> None:
    keeper = KeepWarm(lambda: None, period=0.001)
    with keeper:
        _until(lambda: keeper.steps > 2)
        keeper.pause()
        time.sleep(0.05)
        steps = keeper.steps
        time.sleep(0.05)
        assert keeper.steps <= steps + 1
        keeper.resume()
        _until(lambda: keeper.steps > steps + 2)
    assert "keep-warm" not in {thread.name for thread in threading.enumerate()}


def test_what_goes_wrong_in_the_thread_comes_out() -> None:
    with pytest.raises(ZeroDivisionError), KeepWarm(lambda: 1 / 0, period=0.001) as keeper:
        _until(lambda: keeper.error is not None)


def test_the_docs_say_what_the_files_say() -> None:
    text = " ".join((ROOT / "docs" / "timing.md").read_text().split())
    results = ROOT / "benchmarks" / "results"
    sweep = json.loads((results / "idle_gap" / "h200.json").read_text())
    assert sweep["verdict"] == IdleGap.from_json(sweep).json()["verdict"]
    assert sweep["verdict"]["cause"] == "host launch"
    points = sweep["points"]
    plain = [each["plain_us"] for each in points]
    assert f"{plain[0]:.0f} us between the events back to back and {span(plain[1:])} us" in text
    low, high = plain[0] - points[0]["plain_mad_us"], plain[0] + points[0]["plain_mad_us"]
    assert {each["n"] for each in points} == {2}
    assert f"two calls each, which back to back were {low:.0f} and {high:.0f}" in text
    assert {f"{each['gated_us']:.0f}" for each in points} == {"107"}
    assert "it takes 107 us after every one" in text
    assert f"at {span([each['megahertz'] for each in points])} MHz" in text
    runs = json.loads((results / "keep_warm" / "h200.json").read_text())["runs"]
    calls: dict[str, list[float]] = {}
    for run in runs:
        kind = run["condition"].split()[0].strip(",")
        calls.setdefault(kind, []).extend(e["plain_us"] for e in run["points"] if e["gap"])
        if kind == "a":
            back_to_back = run["points"][0]["plain_us"]
    assert f"take {span(calls['spins'])} us, without them {span(calls['nothing'])}." in text
    assert f"does: {span(calls['a'])} us, and {back_to_back:.0f} back to back" in text
    for ours in (calls["nothing"][:3], calls["nothing"][3:]):  # before and after
        times = [plain / graph for plain, graph in zip(ours, calls["a"], strict=True)]
        assert 5 < min(times) < max(times) < 8, "README says five to eight times as fast"


def span(figures: list[float]) -> str:
    return f"{min(figures):.0f} to {max(figures):.0f}"


@pytest.mark.skipif(torch.cuda.is_available(), reason="says so where there is no GPU")
def test_without_a_gpu_it_says_so() -> None:
    command = [sys.executable, str(SCRIPT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "needs a GPU" in done.stderr


@pytest.mark.needs_cuda
def test_it_runs(tmp_path: Path) -> None:
    file = tmp_path / "warm.json"
    command = [sys.executable, str(SCRIPT), "--gaps", "0.02", "--repeats", "1", "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "spins of 20 us every 1 ms: " in done.stdout
    assert file.exists()


def _until(holds) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)
