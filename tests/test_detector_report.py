"""Reports: JSON, SARIF, tables, merging of ranks, the baseline, suggestions."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from syncfree.detector import (
    FORWARD_NOT_KEPT,
    Baseline,
    Event,
    Finding,
    Frame,
    Recorder,
    Report,
    Verdict,
    merge_ranks,
    report_from_json,
)
from syncfree.detector.report import join
from syncfree.detector.suggestions import suggest
from syncfree.detector.text import duration
from syncfree.errors import DetectorError

SOURCE = """import torch

def step(loss):
    print(f"loss {loss.item():.3f}")
    return loss.item()
"""


@pytest.fixture
def train(tmp_path: Path) -> str:
    file = tmp_path / "train.py"
    file.write_text(SOURCE)
    return str(file)


def make_event(file: str, line: int = 4, api: str = "Tensor.item", **fields: Any) -> Event:
    stack = (Frame(file, line, "step"), Frame(file, 9, "main"))
    values = {"verdict": Verdict.SYNC, "why": "It reads a number.", "stack": stack, **fields}
    return Event(api, **values)


def make_report(*events: Event, seconds: float = 1.0, **fields: Any) -> Report:
    recorder = Recorder()
    for event in events:
        recorder.record(event)
    return Report.of(recorder.findings(), tier=0, seconds=seconds, **fields)


@pytest.fixture
def report(train: str) -> Report:
    full = make_event(
        train,
        5,
        "cuMemcpyDtoHAsync_v2",
        blocked_us=250_000.0,
        direction="d2h",
        bytes=4,
        host_memory="pageable",
        op_stack=("aten::_local_scalar_dense", "aten::item"),
        forward=Frame(train, 3, "step"),
        library="libtorch_cuda.so",
    )
    maybe = make_event(train, 1, "cuModuleLoadData", verdict=Verdict.CONDITIONAL, one_time=True)
    plain = make_event(train)
    return make_report(plain, maybe, full, plain, full, allowed={"meant": 3}, note="a note")


# Findings


def test_sorted_by_time_and_count_with_what_may_not_wait_last(train: str) -> None:
    report = make_report(
        make_event(train, 1, verdict=Verdict.CONDITIONAL, blocked_us=9e9),
        make_event(train, 2, blocked_us=5.0),
        make_event(train, 3),
        *[make_event(train, 4)] * 3,
        make_event(train, 5, blocked_us=7.0),
    )
    assert [each.line for each in report.findings] == [5, 2, 4, 3, 1]


def test_lines_apis_and_verdicts_are_apart(train: str) -> None:
    report = make_report(
        make_event(train),
        make_event(train, api="aten::nonzero"),
        make_event(train, verdict=Verdict.POLL),
        make_event(train, 5),
        make_event(train, blocked_us=2.0),
        make_event(train, blocked_us=3.0),
    )
    assert len(report.findings) == 4
    assert report.findings[0].blocked_us == 5.0
    assert report.findings[0].count == 3
    assert report.count == 6


def test_forward_lines_are_apart(train: str) -> None:
    """One line runs all of them backward."""
    first, second = Frame(train, 1, "step"), Frame(train, 3, "step")
    report = make_report(
        make_event(train, 5, forward=first),
        make_event(train, 5, forward=second),
        make_event(train, 5, forward=second),
        make_event(train, 5, forward=FORWARD_NOT_KEPT),
    )
    found = {each.event.forward: each.count for each in report.findings}
    assert found == {first: 1, second: 2, FORWARD_NOT_KEPT: 1}
    assert report_from_json(report.json()).json() == report.json()
    results = report.sarif(Path(train).parent)["runs"][0]["results"]
    related = [each["relatedLocations"] for each in results if "relatedLocations" in each]
    lines = [each["physicalLocation"]["region"]["startLine"] for (each,) in related]
    assert sorted(lines) == [1, 3]
    assert len({each["partialFingerprints"]["syncfreeSite/v1"] for each in results}) == 3


# JSON


def test_json_is_as_documented(report: Report, train: str) -> None:
    document = json.loads(json.dumps(report.json(), allow_nan=False))
    assert (document["version"], document["tier"], document["count"]) == (1, 0, 4)
    assert document["allowed"] == {"meant": 3}
    assert document["findings"][0] == {
        "file": train,
        "line": 5,
        "function": "step",
        "source": "return loss.item()",
        "api": "cuMemcpyDtoHAsync_v2",
        "verdict": "sync",
        "why": "It reads a number.",
        "count": 2,
        "blocked_us": 500_000.0,
        "direction": "d2h",
        "bytes": 4,
        "host_memory": "pageable",
        "op_stack": ["aten::_local_scalar_dense", "aten::item"],
        "forward": {"file": train, "line": 3, "function": "step"},
        "library": "libtorch_cuda.so",
        "one_time": False,
        "ranks": [],
        "proof": "",
        "stack": [
            {"file": train, "line": 5, "function": "step"},
            {"file": train, "line": 9, "function": "main"},
        ],
        "suggestion": report.findings[0].suggestion,
    }


def test_json_there_and_back(report: Report) -> None:
    again = report_from_json(json.dumps(report.json()))
    assert again.json() == report.json()
    assert str(again) == str(report)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1, "tier": 0, "findings": [{}]}'])
def test_what_is_no_report(text: str) -> None:
    with pytest.raises(DetectorError, match="no JSON report"):
        report_from_json(text)


def test_a_later_version() -> None:
    with pytest.raises(DetectorError, match="version 2, but this syncfree reads version 1"):
        report_from_json({"version": 2, "tier": 0, "findings": []})


# SARIF 2.1.0: the rules of its schema for the objects that we write. Each name has its type; those
# with a star are required, and there are no others.

SARIF = {
    "log": {"$schema": str, "version*": "2.1.0", "runs*": ["run"]},
    "run": {
        "tool*": "tool",
        "originalUriBaseIds": {"": "artifactLocation"},
        "columnKind": ("utf16CodeUnits", "unicodeCodePoints"),
        "results": ["result"],
    },
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
        assert not isinstance(value, bool), place
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


# Text


def test_text_names_operators_once(train: str) -> None:
    nested = make_event(train, api="cuStreamSynchronize", op_stack=("aten::nonzero", "aten::index"))
    alone = make_event(train, 5, api="aten::unique", op_stack=("aten::unique",))
    text = str(make_report(nested, alone))
    assert "inside of aten::nonzero < aten::index\n" in text
    assert text.count("inside of") == 1


def test_text_names_everything(report: Report, train: str) -> None:
    text = str(report)
    assert text.startswith("the host waits 4 times at 2 lines, 1 calls may wait (not counted), ")
    assert "3 allowed (meant) [a note]" in text
    assert f"{train}:5 in step: cuMemcpyDtoHAsync_v2, 2x, 500 ms, 50.0% of the wall time" in text
    assert f"{train}:4 in step: Tensor.item, 2x\n" in text
    assert f"backward of {train}:3" in text
    assert "return loss.item()" in text
    assert "cuModuleLoadData (conditional)" in text
    assert text.count("      It reads a number.\n") == 3, "the reason, of conditional ones too"
    assert text.count("# sync-ok: reason") == 1
    assert text.splitlines()[-1].startswith("A wait that is meant: `# sync-ok: reason`")


def test_text_of_a_program_that_failed(report: Report) -> None:
    report.failed = True
    again = report_from_json(json.dumps(report.json()))
    end = "before the program failed: what it did not get to is not judged"
    assert str(again).startswith(f"the host waits 4 times at 2 lines {end}, ")
    nothing = merge_ranks({0: Report.of([], tier=0), 1: report.without(report.findings)})
    assert str(nothing).startswith(f"no wait was found {end}, ")


def test_text_of_a_clean_region() -> None:
    assert str(Report.of([], tier=0)) == "the host never waits [tier 0]"


def test_a_line_of_a_package_names_its_caller(train: str, tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "metric.py"
    package.parent.mkdir()
    package.write_text("x = torch.bincount(y)\n")
    stack = (Frame(str(package), 1, "update"), Frame(train, 5, "step"))
    text = str(make_report(make_event(train, stack=stack)))
    assert f"{package}:1 in update" in text
    assert f"called from {train}:5 in step: return loss.item()" in text


def test_table(report: Report) -> None:
    console = Console(width=300, file=io.StringIO())
    console.print(report.table())
    shown = console.file.getvalue()
    assert re.search(r"500 ms +50\.0% +2 +\S+/train\.py:5 in step: cuMemcpyDtoHAsync_v2", shown)
    assert re.search(r" - +- +2 +\S+/train\.py:4 in step: Tensor.item", shown)
    assert shown.index("train.py:5 in") < shown.index("train.py:4 in") < shown.index("train.py:1")
    assert "the host waits 4 times at 2 lines" in shown
    assert shown.count("It reads a number.") == 3
    assert shown.count("# sync-ok: reason") == 1
    assert "return loss.item()" in shown
    assert "syncfree.deferred" in shown


def test_the_table_names_its_extra(report: Report) -> None:
    code = (
        "import sys; sys.modules['rich'] = None\n"
        "from syncfree.detector import Report\n"
        "r = Report.of([], tier=0); print(r)\n"
        "r.table()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "the host never waits [tier 0]\n"
    assert "pip install 'syncfree[cli]'" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [(0.0, "0 µs"), (999.4, "999 µs"), (999.9, "1 ms"), (123456.0, "123 ms"), (61e6, "61 s")],
)
def test_durations(microseconds: float, text: str) -> None:
    assert duration(microseconds) == text


# Ranks


def test_merging_ranks(train: str) -> None:
    both, one = make_event(train, 4, blocked_us=2.0), make_event(train, 5)
    merged = merge_ranks(
        {
            1: make_report(both, both, seconds=3.0, allowed={"meant": 1}),
            0: make_report(both, one, seconds=2.0, allowed={"meant": 2}, note="n"),
        }
    )
    first, second = merged.findings
    assert (first.line, first.count, first.blocked_us, first.ranks) == (4, 3, 6.0, (0, 1))
    assert (second.line, second.count, second.blocked_us, second.ranks) == (5, 1, None, (0,))
    assert (merged.seconds, merged.allowed, merged.note) == (3.0, {"meant": 3}, "n")
    assert merged.json()["findings"][0]["ranks"] == [0, 1]


def test_merging_changes_no_input(train: str) -> None:
    reports = {rank: make_report(make_event(train)) for rank in range(3)}
    before = [report.json() for report in reports.values()]
    merge_ranks(reports)
    assert [report.json() for report in reports.values()] == before
    with pytest.raises(ValueError, match="at least one"):
        merge_ranks({})


def test_joining_stretches_of_a_run(train: str) -> None:
    joined = join(make_report(make_event(train)), make_report(make_event(train), seconds=2.0))
    assert (joined.count, joined.seconds, joined.findings[0].ranks) == (2, 3.0, ())


# Baseline


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


# Suggestions


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"api": "Tensor.item", "source": 'print(f"loss {loss.item()}")'}, "syncfree.deferred"),
        (
            {"api": "Tensor.item", "source": "losses.append(loss.item())"},
            "append `tensor.detach()`",
        ),
        ({"api": "Tensor.item", "source": "if loss.item() > 3:"}, "torch.where(condition"),
        ({"api": "Tensor.item", "source": "x = loss.item() * 2"}, "0-d tensor"),
        ({"api": "Tensor.__bool__", "source": "if mask.any():"}, "torch.where(condition"),
        ({"api": "Tensor.__float__", "source": "writer.add_scalar('a', float(x))"}, "deferred"),
        ({"api": "Tensor.tolist", "source": "logger.info(x.tolist())"}, "deferred"),
        ({"api": "aten::masked_select", "source": "x[mask].mean()"}, "torch.where(mask, x, 0)"),
        ({"api": "aten::nonzero", "source": "i = x.nonzero()"}, "nonzero_static"),
        ({"api": "aten::unique_dim", "source": "x.unique()"}, "scatter_add_"),
        ({"api": "aten::_unique2", "source": "x.unique()"}, "scatter_add_"),
        ({"api": "aten::bincount", "source": "torch.bincount(x)"}, "scatter_add_"),
        ({"api": "aten::repeat_interleave.Tensor"}, "output_size="),
        ({"api": "aten::one_hot"}, "num_classes="),
        ({"api": "Tensor.cpu", "source": "a = b.cpu()", "direction": "d2h"}, "syncfree.deferred"),
        ({"api": "Tensor.numpy", "source": "a = b.numpy()"}, "Stay on the device"),
        (
            {"api": "aten::_to_copy", "source": "x.cuda()", "direction": "h2d"},
            "pin_memory().to(device, non_blocking=True)",
        ),
        (
            {"api": "cuMemcpyHtoD_v2", "source": "torch.tensor(3, device=d)", "direction": "h2d"},
            "`device=`",
        ),
        ({"api": "torch.cuda.synchronize"}, "wait_stream"),
        ({"api": "Event.query"}, "A loop on `query()`"),
        ({"api": "print", "source": "print(x)"}, "Printing a tensor"),
        ({"api": "Tensor.__format__"}, "Printing a tensor"),
        ({"api": "GradScaler.step"}, "fused=True"),
        ({"api": "clip_grad_norm_"}, "error_if_nonfinite"),
        ({"api": "cuMemFree_v2"}, "empty_cache"),
        ({"api": "ncclBarrier"}, "barrier"),
        # The driver's names do not say what was written: operators and the line do.
        (
            {"api": "cuStreamSynchronize", "op_stack": ("aten::nonzero", "aten::index")},
            "Keep the full shape",
        ),
        ({"api": "aten::index", "op_stack": ("aten::index",)}, "Keep the full shape"),
        (
            {"api": "cudaMalloc", "op_stack": ("aten::empty", "aten::index")},
            "torch's allocator",
        ),
        (
            {
                "api": "cuMemcpyHtoDAsync_v2",
                "op_stack": ("aten::copy_", "aten::to", "aten::index"),
                "direction": "h2d",
            },
            "pin_memory",
        ),
        (
            {
                "api": "cuStreamSynchronize",
                "op_stack": ("aten::_local_scalar_dense", "aten::item", "aten::is_nonzero"),
                "source": "if x.any():",
            },
            "Decide on the device",
        ),
        ({"api": "cuStreamSynchronize", "source": "n = torch.bincount(y)"}, "scatter_add_"),
        ({"api": "cuStreamSynchronize", "source": "log(loss.item())"}, "deferred"),
        ({"api": "torch sync debug mode", "source": "y = x.cpu()"}, "Stay on the device"),
        ({"api": "torch sync debug mode", "source": "y = x.to('cuda')"}, "non_blocking=True"),
        ({"api": "torch.cuda.Event.synchronize", "source": "x = shown.value()"}, ".ready()"),
        ({"api": "cuCtxSynchronize", "source": "solve(a)"}, "sync-ok"),
        # A checkpoint has to wait; what is read for it has not.
        ({"api": "UntypedStorage.cpu", "direction": "d2h"}, 'allow_sync("checkpoint")'),
        (
            {"api": "cuMemcpyDtoHAsync_v2", "source": "torch.save(net, f)", "direction": "d2h"},
            "# sync-ok: checkpoint",
        ),
        ({"api": "torch sync debug mode", "source": "torch.save(net, f)"}, "# sync-ok: checkpoint"),
        ({"api": "Tensor.item", "source": "torch.save({'l': loss.item()}, f)"}, "0-d tensor"),
    ],
    ids=str,
)
def test_suggestions(fields: dict, part: str) -> None:
    assert part in suggest(**fields)
