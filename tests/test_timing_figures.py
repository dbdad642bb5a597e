"""Figures, notes, tables and plots of samples whose truth is known because it was made up."""

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

from sample_cases import series, summary_of
from syncfree.errors import MissingExtraError
from syncfree.timing import display
from syncfree.timing.samples import History, Recording, Sample
from syncfree.timing.summary import Summary


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


def kept(samples: list[Sample], count: int, keep: int) -> History:
    """What is left of a history that was longer."""
    whole = History.of(samples)
    return replace(whole, count=count, samples=whole.samples[-keep:])


def run_of_steps(steps: int, copies: int) -> tuple[list[Sample], list[Sample], list[Sample]]:
    """Steps with one region inside, in which there are copies of 5 us."""
    made: tuple[list[Sample], list[Sample], list[Sample]] = [], [], []
    sequence = 0
    for _ in range(steps):
        names = [("step", 0, 0), ("load", 1, 1), *[("copy", 2, n) for n in range(2, copies + 2)]]
        for place, (name, depth, n) in enumerate(names):
            kind = "h2d" if depth == 2 else "compute"
            parent = 0 if depth == 0 else sequence + depth
            sample = Sample(name, kind, sequence + place + 1, parent, depth, gpu_us=5.0)
            made[depth].append(sample)
            assert place == n
        sequence += copies + 2
    return made


def test_transfers_that_are_gone_do_not_count_as_none() -> None:
    steps, loads, copies = run_of_steps(10, copies=4)
    whole = [History.of(steps), History.of(loads)]
    for keep, expected in ((40, 20.0), (10, 20.0), (5, 20.0), (3, None)):
        summary = Summary(Recording((*whole, kept(copies, 40, keep))))
        assert [summary[name].transfers_us for name in ("step", "load")] == [expected] * 2
    # What lies between is gone as well: its transfers are not told to be the step's.
    between = kept(loads, 10, 3)
    summary = Summary(Recording((whole[0], between, History.of(copies))))
    assert [summary[name].transfers_us for name in ("step", "load")] == [20.0, 20.0]


def test_captured_transfers_do_not_tell_which_are_gone() -> None:
    steps, loads, copies = run_of_steps(10, copies=4)
    replays = [replace(each, captured=True) for each in copies]
    summary = Summary(Recording((History.of(steps), History.of(loads), kept(replays, 80, 40))))
    assert summary["step"].transfers_us is None


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
    assert text == (
        "no samples yet\nTimes are of the host's clock, because it rains.\n1 region was lost: why."
    )
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
