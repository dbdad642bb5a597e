"""Known sites pass, new ones do not: the ratchet."""

from __future__ import annotations

import json
import logging
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


def test_a_known_wait_in_a_package_is_new_where_someone_else_calls(
    train: str, tmp_path: Path
) -> None:
    def called(line: int, function: str, package: str = "/a/site-packages/data.py") -> Finding:
        stack = (Frame(package, 206, "_bincount"), Frame(train, line, function))
        return found(train, line, "aten::bincount", stack=stack)

    file = tmp_path / "syncs.json"
    Baseline.of([called(4, "step")], tmp_path).write(file)
    (written,) = json.loads(file.read_text())["findings"]
    assert written["file"] == "site-packages/data.py"
    assert written["caller"] == {
        "file": "train.py",
        "function": "step",
        "source": 'print(f"loss {loss.item():.3f}")',
    }
    baseline = Baseline.read(file, tmp_path)
    known, new = called(4, "step", "/elsewhere/dist-packages/data.py"), called(5, "validate")
    difference = baseline.compare([known, new])
    assert (difference.known, difference.new, difference.vanished) == ([known], [new], [])
    # The line that calls may be edited, and one more in the same function is new.
    assert baseline.compare([called(5, "step")]).new == []
    assert baseline.compare([known, called(5, "step")]).new == [called(5, "step")]
    assert "called from train.py in step: print(" in str(baseline.compare([]).vanished[0])
    # A report is a baseline too; one that knows nothing of callers knows the wait whoever calls.
    document = Report.of([known], tier=0).json()
    for has_caller in (True, False):
        if not has_caller:
            del document["findings"][0]["caller"]
        file.write_text(json.dumps(document))
        difference = Baseline.read(file, tmp_path).compare([known, new])
        assert difference.new == ([new] if has_caller else [])
        assert difference.vanished == []


def test_files_of_the_standard_library_are_the_same_on_each_machine(tmp_path: Path) -> None:
    places = ["/usr/lib/python3.12/logging/__init__.py", logging.__file__]
    here, there = (found(place, 3) for place in places)
    baseline = Baseline.of([here], tmp_path)
    assert baseline.sites[0].file == "stdlib/logging/__init__.py"
    assert baseline.compare([there]).new == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no JSON: Expecting value"),
        ("[]", 'expected a JSON object with a "version" and a list of "findings", but got []'),
        ('{"version": 1}', 'a list of "findings", but there is no such list'),
        ('{"version": 1, "findings": [1]}', "file, function, api and source, but got 1"),
        (
            '{"version": 1, "findings": [{"file": "a", "function": "b", "api": "c", "source": "d",'
            ' "caller": {"file": "e"}}]}',
            "file, function, api and source, but got {'file': 'a', ",
        ),
    ],
)
def test_what_is_no_baseline(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "syncs.json"
    file.write_text(text)
    with pytest.raises(DetectorError, match=r"syncs\.json is no baseline") as raised:
        Baseline.read(file, tmp_path)
    assert problem in str(raised.value)
    assert "Error:" not in str(raised.value)
    file.write_text('{"version": 9, "sites": []}')
    with pytest.raises(DetectorError, match=r"syncs\.json has version 9, but .* reads version 1"):
        Baseline.read(file, tmp_path)
    with pytest.raises(DetectorError, match=r"no baseline .*: run once with --baseline-update"):
        Baseline.read(tmp_path / "none.json", tmp_path)
    with pytest.raises(DetectorError, match="cannot read the baseline"):
        Baseline.read(tmp_path, tmp_path)
    with pytest.raises(DetectorError, match="cannot write the baseline"):
        Baseline([], tmp_path).write(tmp_path)
