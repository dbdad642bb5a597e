"""Chrome traces of samples whose truth is known because it was made up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncfree.timing.export import chrome_trace
from syncfree.timing.samples import Sample


def test_chrome_trace(tmp_path: Path) -> None:
    samples = [
        Sample("a", gpu_us=5.0, gpu_start_us=1e12 + 20, host_start_us=1e12, host_enqueue_us=9.0),
        Sample("b", gpu_us=4.0, gpu_start_us=1e12 + 25, stream=2, device=1, captured=True),
        Sample("c", kind="h2d", gpu_us=3.0, gpu_start_us=1e12 + 40, device=1, bytes=7),
    ]
    path = tmp_path / "trace.json"
    document = chrome_trace(samples, path)
    assert json.loads(path.read_text()) == document
    spans = [e for e in document["traceEvents"] if e["ph"] == "X"]
    shown = {(e["name"], e["pid"], e["ts"], e["dur"]) for e in spans}
    host = next(e["pid"] for e in spans if e["dur"] == 9.0)
    assert shown == {
        ("a", 0, 20.0, 5.0),
        ("a", host, 0.0, 9.0),
        ("b", 1, 25.0, 4.0),
        ("c", 1, 40.0, 3.0),
    }
    rows = {(e["pid"], e["tid"]) for e in spans}
    titles = {(e["pid"], e["tid"]) for e in document["traceEvents"] if e["name"] == "thread_name"}
    assert titles == rows  # every row has a name, and every name a row
    copied = next(e for e in spans if e["name"] == "c")
    assert copied["cat"] == "h2d"
    assert copied["args"]["bytes"] == 7
    assert chrome_trace([])["traceEvents"] == []


def test_chrome_trace_of_regions_that_overlap() -> None:
    """Perfetto drops what overlaps in a row and is not nested, as regions of coroutines."""
    spans = {
        "a": (0.0, 30.0),
        "b": (1.0, 10.0),
        "c": (2.0, 20.0),
        "d": (12.0, 5.0),
        "e": (40.0, 1.0),
    }
    samples = [
        Sample(name, host_clock=True, host_start_us=start, host_enqueue_us=us, thread=7)
        for name, (start, us) in spans.items()
    ]
    events = chrome_trace(samples)["traceEvents"]
    rows = {e["name"]: e["tid"] for e in events if e["ph"] == "X"}
    assert rows["a"] == rows["b"] == rows["d"] == rows["e"] != rows["c"]
    titles = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert titles == {rows["a"]: "thread 7", rows["c"]: "thread 7 (2)"}


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=20))
def test_rows_of_a_chrome_trace_are_nested(spans: list[tuple[int, int]]) -> None:
    samples = [Sample("r", gpu_start_us=1.0 * start, gpu_us=1.0 * us) for start, us in spans]
    shown = [e for e in chrome_trace(samples)["traceEvents"] if e["ph"] == "X"]
    assert len(shown) == len(spans)
    for one in shown:
        for other in shown:
            if one is not other and one["tid"] == other["tid"] and one["ts"] < other["ts"]:
                end = one["ts"] + one["dur"]
                assert end <= other["ts"] or other["ts"] + other["dur"] <= end


@given(st.floats(0, 1e7), st.floats(1, 1e4), st.floats(0.01, 0.99), st.floats(0, 0.5))
def test_a_chrome_trace_keeps_what_seems_to_end_behind_the_region_around_it(
    start: float, length: float, share: float, behind: float
) -> None:
    """As by the resolution of events. Perfetto drops what crosses an end, in whole nanoseconds."""
    outer = Sample("outer", gpu_start_us=start, gpu_us=length)
    inner = Sample("inner", gpu_start_us=start + share * length, depth=1)
    inner = replace(inner, gpu_us=start + length + behind - inner.gpu_start_us)
    early = Sample("early", gpu_start_us=0.0, device=1)  # so that times do not begin at zero
    shown = chrome_trace([outer, inner, early])["traceEvents"]
    spans = {e["name"]: e for e in shown if e["ph"] == "X"}
    assert spans["outer"]["tid"] == spans["inner"]["tid"]
    ends = {name: int(e["ts"] * 1000) + int(e["dur"] * 1000) for name, e in spans.items()}
    assert ends["inner"] <= ends["outer"]
    assert spans["inner"]["dur"] == pytest.approx(inner.gpu_us, abs=0.503)
