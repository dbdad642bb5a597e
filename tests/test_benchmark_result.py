"""How results are shown, and the verdict drawn from them: every figure is known."""

from __future__ import annotations

import json
import sys

import pytest

from syncfree.benchmarking import Comparison, Result
from syncfree.benchmarking.verdict import judge
from syncfree.errors import MissingExtraError


def made(**fields) -> Result:
    """A result of which every figure is known."""
    values = {
        "name": "step",
        "kind": "cuda",
        "device": "simulated GPU",
        "mode": "steady",
        "gated": True,
        "not_gateable": "",
        "l2": "flush",
        "graph": False,
        "device_us": 90.0,
        "interval_us": (89.5, 90.9),
        "mad_us": 0.7,
        "host_us": 520.0,
        "plain_us": 550.0,
        "loop_us": None,
        "loop_host_us": None,
        "no_loop": "",
        "samples_us": (89.0, 89.5, 90.0, 90.9, 92.0),
        "discards": {"hardware thermal slowdown": 2},
        "megahertz": 1975.0,
        "watts": 412.0,
        "celsius": 51.0,
        "throttle": ("software power cap",),
        "extra_bytes": 3 * 2**20,
        "memory_share": 0.25,
        "compute_share": None,
        "first_calls_s": 1.5,
        "stopped": "precision",
        "notes": ("a note",),
    }
    return Result(**{**values, **fields})


def test_json_without_an_interval() -> None:
    found = made(interval_us=None)
    assert json.loads(json.dumps(found.json(), allow_nan=False))["interval_us"] is None
    assert found.half_width is None
    assert "n = 5, too few for an interval" in str(found)


def test_a_call_that_does_nothing() -> None:
    nothing = made(device_us=0.0, interval_us=(0.0, 0.0), mad_us=0.0, samples_us=(0.0,) * 6)
    assert nothing.half_width == 0
    assert "step: 0 us (+-0.00%, n = 6" in str(nothing)
    assert nothing.table().row_count == 1
    json.dumps(nothing.json(), allow_nan=False)
    assert made(device_us=0.0, interval_us=(0.0, 0.1)).half_width is None


def test_text() -> None:
    assert str(made(stopped="time limit")) == (
        "step: 90 us (+-1.00%, n = 5, MAD 0.7 us)\n"
        "  GPU events behind a gate, L2 flushed, mode steady, on simulated GPU; host 520 us a "
        "single call, without the gate 550 us, memory 3 MiB\n"
        "  1975 MHz, 412 W, 51 C, held down by software power cap\n"
        "  launch-bound: the host takes 520 us to enqueue 90 us of GPU work, so a call takes "
        "550 us: capture a graph (graph=True) or fuse\n"
        "  discarded: 2, hardware thermal slowdown\n"
        "  stopped by the time limit, before the precision asked for\n"
        "  note: a note"
    )


def test_the_host_figures_say_which_they_are() -> None:
    looped = made(host_us=79.0, loop_us=19.0, loop_host_us=15.4)
    assert "host 15.4 us of 19 us back to back, 79 us a single call" in str(looped)
    alone = made(host_us=79.0, loop_host_us=15.4, no_loop="setup runs between the calls")
    assert "host 15.4 us back to back, 79 us a single call" in str(alone)
    assert "\n  no GPU time back to back: setup runs between the calls\n" in str(alone)
    cpu = made(kind="cpu", gated=False, no_loop="on the CPU")
    assert "host 520 us," in str(cpu)
    assert "back to back" not in str(cpu)


def test_the_verdict_never_mixes_a_loop_with_single_calls() -> None:
    calls = {"device_us": 17.0, "host_us": 45.0, "plain_us": 20.0, "loop_host_us": 16.0}
    assert made(**calls).verdict.kind == "gpu-bound"  # the GPU had the call's work in 20 us
    assert made(**calls, loop_us=21.0).verdict.kind == "launch-bound"


def test_table_and_plot(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    calls = {"host_us": 79.0, "loop_us": 19.0, "loop_host_us": 15.4}
    plain = made(name="a", no_loop="a setup is between")
    both = Comparison({"a": plain, "b": made(name="b", device_us=180.0, **calls)})
    table = both.table()
    assert table.row_count == 2
    Console(width=200).print(table)
    shown = capsys.readouterr().out
    for text in ("90 us", "2.00", "1975", "25%", "launch-bound", "2 discarded", "a note"):
        assert text in shown, text
    for text in ("15.4 us", "a: a setup is between; a single call takes the host 520 us"):
        assert text in shown, text
    assert "host in a loop: the host's time per call when calls follow one another" in shown
    assert "79 us" not in shown  # of a single call: not beside the loop's, which it looks like
    assert made().table().row_count == 1
    for file in ("plot.svg", "plot.png"):
        both.plot(tmp_path / file)
        assert (tmp_path / file).stat().st_size > 1000
    made().plot(tmp_path / "one.svg")


@pytest.mark.parametrize(
    ("device_us", "shown"), [(0.09, "0.001"), (2.7, "0.03"), (9.0, "0.10"), (45.0, "0.50")]
)
def test_no_ratio_is_shown_as_zero(device_us: float, shown: str) -> None:
    both = Comparison({"slow": made(device_us=90.0), "fast": made(device_us=device_us)})
    (ratios,) = [column for column in both.table().columns if column.header == "ratio"]
    assert list(ratios.cells) == ["1.00", shown]


def test_without_the_extras(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.delitem(sys.modules, "syncfree.benchmarking.table", raising=False)
    for module in ("rich", "rich.table", "rich.box", "matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=r"syncfree\[cli\]"):
        made().table()
    with pytest.raises(MissingExtraError, match=r"syncfree\[plot\]"):
        made().plot(tmp_path / "x.png")
    assert str(made())


@pytest.mark.parametrize(
    ("figures", "kind"),
    [
        ({"device_us": 90, "host_us": 520, "plain_us": 550}, "launch-bound"),
        ({"device_us": 90, "host_us": 520, "plain_us": 95}, "gpu-bound"),  # not confirmed
        ({"device_us": 90, "host_us": 20, "plain_us": 200}, "gpu-bound"),  # not the host
        ({"device_us": 90, "host_us": 80}, "launch-bound"),
        ({"device_us": 90, "host_us": 20}, "gpu-bound"),
        ({"device_us": 90, "host_us": 9, "memory_share": 0.7}, "memory-bound"),
        ({"device_us": 90, "host_us": 9, "compute_share": 0.7}, "compute-bound"),
        (
            {"device_us": 90, "host_us": 9, "compute_share": 0.8, "memory_share": 0.7},
            "compute-bound",
        ),
        ({"device_us": 90, "host_us": 9, "memory_share": 0.5}, "gpu-bound"),
        ({"device_us": 90, "host_us": 95, "not_gateable": "waits at line x.py:1 (x)"}, "waits"),
    ],
)
def test_verdicts(figures, kind) -> None:
    assert judge(kind="cuda", **figures).kind == kind
