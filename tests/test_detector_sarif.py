"""Reports as SARIF, against the rules of its schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from report_cases import SOURCE, make_event, make_report
from syncfree.detector import (
    Report,
)

# SARIF 2.1.0: the rules of its schema for the objects that we write. Each name has its type; those
# with a star are required, and there are no others.
SARIF = {
    "log": {"$schema": str, "version*": "2.1.0", "runs*": ["run"]},
    "run": {
        "tool*": "tool",
        "originalUriBaseIds": {"": "artifactLocation"},
        "columnKind": ("utf16CodeUnits", "unicodeCodePoints"),
        "results": ["result"],
        "invocations": ["invocation"],
    },
    "invocation": {"executionSuccessful*": bool},
    "tool": {"driver*": "driver"},
    "driver": {"name*": str, "semanticVersion": str, "rules": ["rule"]},
    "rule": {
        "id*": str,
        "shortDescription": "message",
        "fullDescription": "message",
        "help": "message",
        "defaultConfiguration": "configuration",
    },
    "configuration": {"level": ("none", "note", "warning", "error")},
    "message": {"text*": str},
    "result": {
        "ruleId": str,
        "ruleIndex": int,
        "level": ("none", "note", "warning", "error"),
        "message*": "message",
        "locations": ["location"],
        "relatedLocations": ["location"],
        "stacks": ["stack"],
        "partialFingerprints": {"": str},
        "occurrenceCount": int,
        "baselineState": ("new", "unchanged", "updated", "absent"),
        "properties": dict,
    },
    "stack": {"message": "message", "frames*": ["frame"]},
    "frame": {"location": "location"},
    "location": {
        "physicalLocation": "physicalLocation",
        "logicalLocations": ["logicalLocation"],
        "message": "message",
    },
    "logicalLocation": {"fullyQualifiedName": str, "kind": str},
    "physicalLocation": {"artifactLocation*": "artifactLocation", "region": "region"},
    "artifactLocation": {"uri*": str, "uriBaseId": str},
    "region": {"startLine*": int, "snippet": "message"},
}


def check(value: Any, rule: Any, place: str) -> None:
    if isinstance(rule, list):
        assert isinstance(value, list), place
        for number, each in enumerate(value):
            check(each, rule[0], f"{place}[{number}]")
    elif isinstance(rule, type):
        assert isinstance(value, rule), place
        assert isinstance(value, bool) == (rule is bool), place
        if rule is int:
            assert value >= 0, place
    elif isinstance(rule, tuple):
        assert value in rule, place
    elif isinstance(rule, dict) and "" in rule:
        for name, each in value.items():
            check(each, rule[""], f"{place}.{name}")
    elif isinstance(rule, str) and rule in SARIF:
        rules = {name.rstrip("*"): each for name, each in SARIF[rule].items()}
        assert set(value) <= set(rules), place
        assert {name[:-1] for name in SARIF[rule] if name.endswith("*")} <= set(value), place
        for name, each in value.items():
            check(each, rules[name], f"{place}.{name}")
    else:
        assert value == rule, place


def test_sarif_follows_the_schema(report: Report, tmp_path: Path) -> None:
    log = json.loads(json.dumps(report.sarif(tmp_path), allow_nan=False))
    check(log, "log", "log")
    (run,) = log["runs"]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        for location in result["locations"]:
            artifact = location["physicalLocation"]["artifactLocation"]
            assert artifact == {"uri": "train.py", "uriBaseId": "SRCROOT"}
    assert run["originalUriBaseIds"]["SRCROOT"]["uri"] == f"{tmp_path.as_uri()}/"
    lines = [r["locations"][0]["physicalLocation"]["region"]["startLine"] for r in run["results"]]
    assert lines == [5, 4, 1]
    assert [result["level"] for result in run["results"]] == ["warning", "warning", "note"]
    assert [result["occurrenceCount"] for result in run["results"]] == [2, 2, 1]


def test_sarif_of_nothing_and_of_odd_files(tmp_path: Path) -> None:
    check(Report.of([], tier=2).sarif(), "log", "log")
    odd = make_report(make_event("<stdin>", 0), make_event(str(tmp_path / "a b%.py")))
    log = odd.sarif("/elsewhere")
    check(log, "log", "log")
    uris = {
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for result in log["runs"][0]["results"]
    }
    assert uris == {"%3Cstdin%3E", (tmp_path / "a b%.py").as_uri()}


def test_sarif_tells_what_a_baseline_knows(report: Report) -> None:
    def states(report: Report) -> list[str | None]:
        log = report.sarif()
        check(log, "log", "log")
        return [each.get("baselineState") for each in log["runs"][0]["results"]]

    assert states(report) == [None, None, None]
    first = report.findings[0]
    assert states(report.compared([first])) == ["new", "unchanged", None]


@pytest.mark.parametrize("failed", [False, True])
def test_sarif_tells_of_a_program_that_failed(report: Report, failed: bool) -> None:
    report.failed = failed
    (run,) = report.sarif()["runs"]
    assert run["invocations"] == [{"executionSuccessful": not failed}]


def test_sarif_knows_a_warning_again_when_lines_are_added(train: str, tmp_path: Path) -> None:
    def prints(report: Report) -> list[str]:
        results = report.sarif(tmp_path)["runs"][0]["results"]
        return [result["partialFingerprints"]["syncfreeSite/v1"] for result in results]

    before = prints(make_report(make_event(train), make_event(train, 5)))
    assert len(set(before)) == 2
    moved = tmp_path / "moved"
    moved.mkdir()
    (moved / "train.py").write_text("# a new line\n" + SOURCE)
    after = make_report(
        make_event(str(moved / "train.py"), 5), make_event(str(moved / "train.py"), 6)
    )
    results = after.sarif(moved)["runs"][0]["results"]
    assert [r["partialFingerprints"]["syncfreeSite/v1"] for r in results] == before
