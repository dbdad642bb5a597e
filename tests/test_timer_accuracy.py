"""The comparison of the timer with CUPTI: how it judges, on figures that are made up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from timer_accuracy import Empty, compared, table

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "benchmarks" / "timer_accuracy.py"


def test_two_microseconds_or_two_percent() -> None:
    short = compared([3.9, 4.1, 5.0], [2.0, 2.0, 2.0])
    assert (short.kernel_us, short.region_us, short.n) == (2.0, 4.1, 3)
    assert short.worst_us == pytest.approx(3.0)
    assert short.beyond == 2
    long = compared([10_190.0, 10_210.0, 9_700.0], [10_000.0] * 3)
    assert long.worst_us == pytest.approx(-300.0)
    assert long.beyond == 2
    shown = table([short, long], Empty(2.9, 0.1, 1.5))
    assert "2 of 3" in shown
    assert "-300.00" in shown
    assert shown.splitlines()[-3:] == [
        "taken off each region, for its two events: 2.90 us",
        "a region with nothing in it: 0.10 us",
        "the same in a CUDA graph, whole: 1.50 us",
    ]
    assert "for its two events: nothing" in table([], Empty(None, 3.0, 1.5))


def test_a_kernel_too_few_is_no_comparison() -> None:
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        compared([1.0, 2.0], [1.0])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_needs_a_gpu() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "this needs a GPU" in done.stderr


def test_the_docs_say_what_the_file_says() -> None:
    text = " ".join((ROOT / "docs" / "timing.md").read_text().split())
    found = json.loads((ROOT / "benchmarks" / "results" / "timing" / "h200.json").read_text())
    rows, bracket = found["rows"], found["bracket_us"]
    off = [row["region_us"] - row["kernel_us"] for row in rows]
    assert f"kernels of {rows[0]['kernel_us']:.1f} us to 10 ms" in text
    assert rows[-1]["kernel_us"] == pytest.approx(10_000, rel=1e-3)
    assert f"read {min(off) + bracket:.1f} to {max(off) + bracket:.1f} us more" in text
    assert f"an empty region reads {found['empty_us'] + bracket:.1f} us" in text
    worst = max(abs(row["worst_us"]) for row in rows)
    assert f"read {min(off):.1f} to {max(off):.1f} us more than CUPTI, at worst {worst:.1f}" in text
    assert sum(row["beyond"] for row in rows) == 0
    assert f"none of {sum(row['n'] for row in rows)} is off" in text
