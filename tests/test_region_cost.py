"""The script that measures what a region costs the host."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch

import region_cost
from region_cost import Cost, costs, table

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "region_cost.py"


def test_bursts_take_turns_and_the_first_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, order = [0], []
    monkeypatch.setattr(region_cost, "BURSTS", 5)
    monkeypatch.setattr(region_cost.time, "perf_counter_ns", lambda: clock[0])

    def contender(name: str, *ns: int):
        durations = iter(ns)

        def burst() -> None:
            order.append(name)
            clock[0] += next(durations) * region_cost.REGIONS

        return burst

    bursts = {
        "ours": contender("ours", 90_000, 80_000, 2000, 2500, 3000, 2400, 9000),
        "theirs": contender("theirs", 1, 2, 11_000, 11_000, 12_000, 13_000, 14_000),
    }
    rows = costs({"pool": nullcontext}, bursts, lambda: order.append("drain"))
    assert rows == [Cost("pool", "ours", 2.5, 2.0), Cost("pool", "theirs", 12.0, 11.0)]
    assert order == ["drain", "ours", "drain", "theirs"] * 7
    assert table(rows).splitlines()[1:] == [
        "    pool  ours                             2.50      2.00      1.00x",
        "    pool  theirs                          12.00     11.00      4.80x",
    ]


def test_streams_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_cost, "BURSTS", 3)
    current, order = [], []

    @contextmanager
    def enter(name: str) -> Iterator[None]:
        current.append(name)
        yield
        current.pop()

    streams = {name: partial(enter, name) for name in ("legacy", "pool")}
    bursts = {name: partial(lambda n: order.append((*current, n)), name) for name in "ab"}
    rows = costs(streams, bursts, lambda: None)
    each = [("legacy", "a"), ("legacy", "b"), ("pool", "a"), ("pool", "b")]
    assert order == each * 5
    assert [(row.stream, row.name) for row in rows] == each


def test_without_a_gpu(tmp_path: Path) -> None:
    command = [sys.executable, SCRIPT, "--device", "cpu", "--json", tmp_path / "cost.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads((tmp_path / "cost.json").read_text())
    assert [row["name"] for row in found["rows"]] == ["syncfree", "time.perf_counter"]
    assert all(0 < row["least_us"] <= row["median_us"] for row in found["rows"])
    assert "syncfree" in done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_says_that_it_needs_a_gpu() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--device cpu" in done.stderr


@pytest.mark.needs_cuda
@pytest.mark.alone
def test_on_a_gpu() -> None:
    rows = region_cost.measure("cuda")
    assert {row.stream for row in rows} == {"legacy", "pool"}
    assert len({row.name for row in rows}) == len(rows) / 2 == 5
