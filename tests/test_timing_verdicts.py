"""Flags, verdicts, figures and exports of samples whose truth is known because it was made up."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncfree.errors import MissingExtraError
from syncfree.timing import display
from syncfree.timing.export import chrome_trace
from syncfree.timing.samples import History, Recording, Sample
from syncfree.timing.summary import Summary
from syncfree.timing.verdicts import duration, flagged, verdict


def series(count: int = 20, name: str = "step", **fields: object) -> list[Sample]:
    """Equal samples one after the other; the first one is marked so."""
    made = []
    for number in range(count):
        sample = Sample(name, sequence=number + 1, gpu_start_us=1000.0 * number, first=number == 0)
        made.append(replace(sample, **fields))  # type: ignore[arg-type]
    return made


def words(samples: list[Sample]) -> str:
    return verdict(flagged(samples))


LAUNCH_BOUND = {"gpu_us": 530.0, "host_enqueue_us": 520.0, "queued": False}
GPU_BOUND = {"gpu_us": 9800.0, "host_enqueue_us": 300.0, "queued": True}


def test_launch_bound() -> None:
    samples = series(**LAUNCH_BOUND)
    assert all("launch_bound" in s.flags for s in flagged(samples))
    assert words(samples).startswith(
        "launch-bound: host enqueue 520 us for 530 us between the events: capture a graph or fuse"
    )


def test_launch_bound_with_samples_that_show_the_work() -> None:
    behind = series(3, gpu_us=90.0, host_enqueue_us=500.0, queued=True)
    samples = series(17, **LAUNCH_BOUND) + [replace(s, sequence=s.sequence + 17) for s in behind]
    assert words(samples).startswith(
        "launch-bound: host enqueue 520 us for 90 us of GPU work: capture a graph or fuse"
    )


def test_gpu_bound() -> None:
    samples = series(**GPU_BOUND)
    assert not any("launch_bound" in s.flags for s in flagged(samples))
    assert words(samples) == "GPU-bound: 9.8 ms of GPU time, enqueued in 300 us"


def test_a_host_that_the_gpu_holds_up_is_not_launch_bound() -> None:
    """The launch queue is full: the host takes as long as the GPU, because of the GPU."""
    samples = series(gpu_us=1000.0, host_enqueue_us=990.0)
    samples[0] = replace(samples[0], queued=True)  # probed once; holds for those behind it
    assert not any("launch_bound" in s.flags for s in flagged(samples))
    samples[10] = replace(samples[10], queued=False)
    assert ["launch_bound" in s.flags for s in flagged(samples)] == [False] * 10 + [True] * 10


@pytest.mark.parametrize(("enqueue", "expected"), [(81.0, True), (79.0, False)])
def test_where_launch_bound_begins(enqueue: float, expected: bool) -> None:
    (sample,) = flagged([Sample("r", gpu_us=100.0, host_enqueue_us=enqueue, queued=False)])
    assert ("launch_bound" in sample.flags) is expected


def test_the_gpu_starves_between_regions() -> None:
    samples = series(**{**GPU_BOUND, "gpu_gap_us": 6000.0})
    assert words(samples).endswith("; before it the GPU is idle or untimed for 6 ms")


def test_clocks() -> None:
    fast = series(10, mhz=1980.0, **GPU_BOUND)
    slow = series(10, mhz=1200.0, **GPU_BOUND)
    ramp = series(10, mhz=1200.0, host_gap_us=2e6, **GPU_BOUND)
    highest = {0: 1980.0}
    slow, ramp = list(flagged(slow, highest)), list(flagged(ramp, highest))
    assert {s.flags for s in flagged(fast)} == {("cold", "first"), ()}
    assert {s.flags for s in slow[1:]} == {("throttled",)}
    assert {s.flags for s in ramp[1:]} == {("cold", "ramp")}
    assert {s.flags for s in flagged(slow, {1: 1980.0})[1:]} == {()}  # of another GPU
    assert "; throttled: 1200 MHz" in verdict(slow)
    assert "; the clock ramps: 1200 MHz after gaps" in verdict(ramp)
    nearly = series(10, mhz=1980.0 * 0.91, **GPU_BOUND)
    assert {s.flags for s in flagged(nearly, highest)[1:]} == {()}


@pytest.mark.parametrize(("gap", "flag"), [(1.01e4, "ramp"), (0.99e4, "throttled")])
@pytest.mark.parametrize("side", ["host_gap_us", "gpu_gap_us"])
def test_where_a_ramp_begins(gap: float, flag: str, side: str) -> None:
    slow = Sample("r", gpu_us=1000.0, mhz=1200.0)
    (sample,) = flagged([replace(slow, **{side: gap})], {0: 1980.0})  # type: ignore[arg-type]
    assert sample.flags == (flag,)


def test_cold_and_first() -> None:
    samples = series(4, **GPU_BOUND)
    samples[2] = replace(samples[2], host_gap_us=1.5e5)
    assert [s.flags for s in flagged(samples)] == [("cold", "first"), (), ("cold",), ()]
    assert words(samples[:1]).endswith("(of the first run alone)")


def test_transfers() -> None:
    samples = series(kind="h2d", gpu_us=100.0, bytes=2_500_000, host_enqueue_us=99.0)
    assert words(samples) == "to the GPU: 100 us a copy, 25 GB/s"
    unknown = series(kind="d2h", gpu_us=100.0)
    assert words(unknown) == "from the GPU: 100 us a copy, of unknown size"


def test_captured_and_host_clock() -> None:
    assert words(series(captured=True, gpu_us=90.0)) == "captured: 90 us a replay"
    host = series(host_clock=True, gpu_us=90.0, host_enqueue_us=90.0, device=-1)
    assert words(host) == "host time: 90 us by the clock, without a GPU"
    assert not any("launch_bound" in s.flags for s in flagged(host))


def test_times_that_vary() -> None:
    steady = series(20, **GPU_BOUND)
    samples = [replace(s, gpu_us=30_000.0) if n % 5 == 0 else s for n, s in enumerate(steady)]
    assert words(samples).endswith("; varies: p90 is 3.1 times the median")


def test_a_verdict_needs_a_sample() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        verdict([])


@given(st.floats(0, 1e12))
def test_durations_have_three_digits(us: float) -> None:
    number, unit = duration(us).split()
    scale = {"us": 1.0, "ms": 1e3, "s": 1e6}[unit]
    assert float(number) * scale == pytest.approx(us, rel=0.005)
    assert unit == "s" or float(number) < 1000


def test_durations_at_the_ends_of_units() -> None:
    assert [duration(us) for us in (0.05, 7.42, 999.0, 999.7, 1000.0, 999.6e3, 2.5e6)] == [
        "0.05 us",
        "7.42 us",
        "999 us",
        "1 ms",
        "1 ms",
        "1 s",
        "2.5 s",
    ]


def summary_of(*regions: list[Sample], **counts: object) -> Summary:
    histories = tuple(History.of(each) for each in regions)
    return Summary(Recording(histories, **counts))  # type: ignore[arg-type]


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=50))
def test_figures_are_numpys(times: list[float]) -> None:
    samples = [Sample("r", sequence=n, gpu_us=us) for n, us in enumerate(times)]
    region = summary_of(samples)["r"]
    expected = np.quantile(times, [0.1, 0.5, 0.9, 0.99])
    got = [region.p10_us, region.median_us, region.p90_us, region.p99_us]
    assert got == pytest.approx(list(expected))
    assert region.total_us == pytest.approx(sum(times))
    assert region.min_us == min(times)
    assert region.mad_us == pytest.approx(np.median(np.abs(np.array(times) - expected[1])))
    assert region.share == pytest.approx(1)


def nested() -> Summary:
    step = series(2, "step", gpu_us=100.0, host_enqueue_us=10.0)
    inner = {"depth": 1, "host_enqueue_us": 5.0}
    forward = [
        replace(s, sequence=s.sequence + 10, parent=s.sequence)
        for s in series(2, "forward", gpu_us=60.0, **inner)
    ]
    copies = [
        replace(s, sequence=s.sequence + 20, parent=s.sequence + 10, depth=2)
        for s in series(2, "copy", gpu_us=25.0, kind="h2d", bytes=25_000, **inner)
    ]
    return summary_of(forward, copies, step, dropped=3, pending=2)


def test_shares_are_of_the_step() -> None:
    summary = nested()
    assert [r.name for r in summary.regions] == ["step", "forward", "copy"]  # by total
    assert [r.share for r in summary.regions] == pytest.approx([1, 0.6, 0.25])
    assert [r.transfers_us for r in summary.regions] == [25.0, 25.0, 0.0]
    assert summary["copy"].gb_per_second == pytest.approx(1.0)
    assert summary["step"].flags == {"cold": 1, "first": 1}


def test_totals_of_samples_that_are_gone_count_in_shares() -> None:
    step = History("step", "compute", 100, 1000.0, 9.0, (Sample("step", gpu_us=10.0),))
    inner = (Sample("inner", gpu_us=1.0, depth=1),)
    forward = History("inner", "compute", 500, 500.0, 0.9, inner)
    summary = Summary(Recording((step, forward)))
    assert [(r.count, r.kept, r.share) for r in summary.regions] == [(100, 1, 1.0), (500, 1, 0.5)]


def test_shares_of_a_name_that_stands_inside_and_outside() -> None:
    """One long copy before the step and many short ones in it: 100 us and 50 us in all."""
    outside = Sample("copy", kind="h2d", gpu_us=100.0)
    inside = [Sample("copy", kind="h2d", gpu_us=1.0, depth=1, parent=2) for _ in range(9)]
    summary = summary_of([outside, *inside], [Sample("step", sequence=2, gpu_us=50.0)])
    assert summary["step"].share == pytest.approx(50 / 150)
    assert summary["copy"].share == pytest.approx(109 / 150)


def test_notes_say_what_is_missing() -> None:
    notes = nested().notes
    assert notes[0] == "2 regions had not ended on the GPU yet."
    assert notes[1].startswith("3 regions were dropped because all slots were taken")
    recording = Recording((), clock="the host's clock, because it rains", lost=1, problem="why")
    text = str(Summary(recording))
    assert text == "Times are of the host's clock, because it rains.\n1 region was lost: why."
    assert str(Summary(Recording(()))) == "no samples yet"


def test_what_was_taken_off_is_told() -> None:
    told = Summary(Recording((), bracket_us={0: 2.9, 1: None}))
    assert told.notes == [
        "Times on GPU 1 contain what two events take by themselves, a few microseconds: it could "
        "not be measured."
    ]
    assert json.loads(json.dumps(told.json()))["bracket_us"] == {"0": 2.9, "1": None}
    assert nested().json()["bracket_us"] == {}


def test_unknown_regions_are_named() -> None:
    with pytest.raises(KeyError, match="'nothing'; there are those of: 'step', 'forward', 'copy'"):
        nested()["nothing"]


def test_histories_are_of_one_name() -> None:
    for samples in ([], [Sample("a"), Sample("b")], [Sample("a"), Sample("a", kind="h2d")]):
        with pytest.raises(ValueError, match="one name and kind"):
            History.of(samples)


def test_json() -> None:
    document = nested().json(samples=True)
    again = json.loads(json.dumps(document))
    assert again["version"] == 1
    assert again["clock"] == "CUDA events"
    assert [r["name"] for r in again["regions"]] == ["step", "forward", "copy"]
    assert again["dropped"] == 3
    assert len(again["samples"]) == 6
    assert again["samples"][0]["flags"] == ["cold", "first"]
    assert "samples" not in nested().json()


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


def rendered(summary: Summary, width: int) -> str:
    from rich.console import Console

    console = Console(file=StringIO(), width=width)
    console.print(summary.table())
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_table() -> None:
    wide = rendered(nested(), 140)
    for part in ("step", "forward", "copy (h2d)", "60%", "GPU-bound: 100 us", "were dropped"):
        assert part in wide
    assert max(map(len, rendered(nested(), 80).splitlines())) <= 80


def test_plot(tmp_path: Path) -> None:
    figure = nested().plot()
    timeline, distribution = figure.axes
    assert len(timeline.collections) == 6  # a bar for each sample
    assert len(timeline.get_yticks()) == 3  # a row for each depth
    by_name = {line.get_label(): line.get_xydata() for line in distribution.lines}
    assert by_name["copy"][:, 0].tolist() == [25.0, 25.0]
    assert by_name["copy"][:, 1].tolist() == [0.5, 1.0]
    figure.savefig(tmp_path / "timing.png")
    assert (tmp_path / "timing.png").stat().st_size > 1000
    Summary(Recording(())).plot().savefig(tmp_path / "empty.png")


def test_the_timeline_shows_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "_MOST_BARS", 3)
    samples = [replace(s, gpu_us=100.0 * s.sequence) for s in series(5)]
    timeline, _ = summary_of(samples).plot().axes
    lengths = [bar.get_paths()[0].get_extents().width for bar in timeline.collections]
    assert lengths == pytest.approx([0.3, 0.4, 0.5])  # milliseconds


@pytest.mark.parametrize("name", ["_step", "$x_{$", "plain"])
def test_the_legend_has_each_name_as_it_is(name: str, tmp_path: Path) -> None:
    regions = [History.of([Sample(each, gpu_us=us)]) for each, us in ((name, 5.0), ("other", 3.0))]
    figure = Summary(Recording(tuple(regions))).plot()
    figure.savefig(tmp_path / "timing.png")
    legend = figure.axes[1].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == [name, "other"]


@pytest.mark.parametrize(
    ("package", "method", "extra"), [("rich", "table", "cli"), ("matplotlib", "plot", "plot")]
)
def test_what_is_not_installed_is_named(
    package: str, method: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [m for m in sys.modules if m.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"syncfree\[{extra}\]"):
        getattr(nested(), method)()


def test_no_torch_is_needed() -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'numpy', 'rich', 'matplotlib'): sys.modules[name] = None\n"
        "from syncfree.timing import History, Recording, Sample, Summary\n"
        "print(Summary(Recording((History.of([Sample('a', gpu_us=2.0)]),)))['a'].median_us)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.stdout == "2.0\n", result.stderr
