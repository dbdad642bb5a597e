"""Known sites pass, new ones do not: the ratchet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from report_cases import SOURCE, make_event, make_report
from syncfree.detector import (
    FORWARD_NOT_KEPT,
    Baseline,
    Finding,
    Frame,
    Report,
    Verdict,
)
from syncfree.errors import DetectorError


def found(file: str, line: int, api: str = "Tensor.item", **fields: Any) -> Finding:
    return make_report(make_event(file, line, api, **fields)).findings[0]


def test_ratchet(train: str, tmp_path: Path) -> None:
    baseline = Baseline.of([found(train, 4), found(train, 5)], tmp_path)
    file = tmp_path / "syncs.json"
    baseline.write(file)
    assert json.loads(file.read_text())["findings"][1] == {
        "file": "train.py",
        "function": "step",
        "api": "Tensor.item",
        "source": "return loss.item()",
    }
    baseline = Baseline.read(file, tmp_path)
    difference = baseline.compare([found(train, 5), found(train, 5, "aten::nonzero")])
    assert [each.event.api for each in difference.known] == ["Tensor.item"]
    assert [each.event.api for each in difference.new] == ["aten::nonzero"]
    assert [each.source for each in difference.vanished] == ['print(f"loss {loss.item():.3f}")']


def test_ratchet_knows_moved_and_edited_lines(train: str, tmp_path: Path) -> None:
    baseline = Baseline.of([found(train, 4), found(train, 5)], tmp_path)
    Path(train).write_text("#\n#\n" + SOURCE.replace("loss.item():.3f", "loss.item():.4f"))
    import linecache

    linecache.checkcache()
    difference = baseline.compare([found(train, 6), found(train, 7)])
    assert (len(difference.known), difference.new, difference.vanished) == (2, [], [])


def test_ratchet_sees_one_more_in_the_same_function(train: str, tmp_path: Path) -> None:
    baseline = Baseline.of([found(train, 5)], tmp_path)
    difference = baseline.compare([found(train, 4), found(train, 5)])
    assert [each.line for each in difference.new] == [4]
    # Also a copy of a known line.
    Path(train).write_text(SOURCE + "    return loss.item()\n")
    import linecache

    linecache.checkcache()
    difference = baseline.compare([found(train, 5), found(train, 6)])
    assert [each.line for each in difference.new] == [6]


def test_conditional_findings_are_in_no_baseline(train: str, tmp_path: Path) -> None:
    maybe = found(train, 4, verdict=Verdict.CONDITIONAL)
    assert Baseline.of([maybe], tmp_path).sites == []
    assert Baseline([], tmp_path).compare([maybe]).new == []


def test_a_json_report_is_a_baseline(report: Report, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(json.dumps(report.json()))
    difference = Baseline.read(file, tmp_path).compare(report.findings)
    assert (len(difference.known), difference.new, difference.vanished) == (2, [], [])


def test_forward_lines_are_no_matter_for_a_baseline(train: str, tmp_path: Path) -> None:
    """Whether they are known hangs on the installed torch, and on what ran before."""
    frames = [Frame(train, 1, "step"), Frame(train, 3, "step"), FORWARD_NOT_KEPT]
    several = [found(train, 5, forward=frame) for frame in frames]
    file = tmp_path / "report.json"
    file.write_text(json.dumps(Report.of(several, tier=3).json()))
    for baseline in (Baseline.of(several, tmp_path), Baseline.read(file, tmp_path)):
        assert len(baseline.sites) == 1
        difference = baseline.compare([found(train, 5)])
        assert (len(difference.known), difference.new, difference.vanished) == (1, [], [])
    difference = Baseline.of([found(train, 5)], tmp_path).compare(several)
    assert (len(difference.known), difference.new, difference.vanished) == (3, [], [])
    assert len(Baseline([], tmp_path).compare(several).new) == 3


def test_files_of_packages_are_the_same_on_each_machine(tmp_path: Path) -> None:
    here, there = (
        found(f"/{place}/lib/site-packages/torchmetrics/stat.py", 3) for place in ("a", "b/c")
    )
    baseline = Baseline.of([here], tmp_path)
    assert baseline.sites[0].file == "site-packages/torchmetrics/stat.py"
    assert baseline.compare([there]).new == []


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1}', '{"version": 1, "findings": [1]}'])
def test_what_is_no_baseline(text: str, tmp_path: Path) -> None:
    file = tmp_path / "syncs.json"
    file.write_text(text)
    with pytest.raises(DetectorError, match=r"syncs\.json is no baseline"):
        Baseline.read(file, tmp_path)
    with pytest.raises(DetectorError, match=r"no baseline .*: run once with --baseline-update"):
        Baseline.read(tmp_path / "none.json", tmp_path)
    with pytest.raises(DetectorError, match="cannot read the baseline"):
        Baseline.read(tmp_path, tmp_path)
    with pytest.raises(DetectorError, match="cannot write the baseline"):
        Baseline([], tmp_path).write(tmp_path)
