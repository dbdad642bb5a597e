"""Reports: their order, JSON, text, tables, merging of ranks."""

from __future__ import annotations

import io
import json
import linecache
import logging
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from report_cases import make_event, make_report
from syncfree.detector import (
    FORWARD_NOT_KEPT,
    Frame,
    Report,
    Verdict,
    merge_ranks,
    report_from_json,
)
from syncfree.detector.report import join
from syncfree.detector.text import duration
from syncfree.errors import DetectorError

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


def test_pickled_with_what_was_found_so_far(train: str) -> None:
    """As the part of a SyncError that a worker raised."""
    report = Report(tier=0, note="no GPU")
    report.record(make_event(train))
    report.record_allowed("meant")
    read = pickle.loads(pickle.dumps(report))
    assert read.json() == report.json()
    report.record(make_event(train))
    assert (read.count, report.count) == (1, 2)


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
    assert document["known_count"] == 0
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
        "reader": None,
        "one_time": False,
        "ranks": [],
        "proof": "",
        "known": None,
        "caller": None,
        "stack": [
            {"file": train, "line": 5, "function": "step"},
            {"file": train, "line": 9, "function": "main"},
        ],
        "suggestion": report.findings[0].suggestion,
    }


def test_json_there_and_back(report: Report) -> None:
    for each in (report, report.compared(report.findings[:1])):
        again = report_from_json(json.dumps(each.json()))
        assert again.json() == each.json()
        assert str(again) == str(each)


def test_json_and_text_tell_what_a_baseline_knows(report: Report) -> None:
    """What may wait is in no baseline: it is neither known nor new."""
    compared = report.compared([each for each in report.findings if each.line == 5])
    document = compared.json()
    assert (document["count"], document["known_count"], report.count) == (2, 2, 4)
    marks = {each["line"]: each["known"] for each in document["findings"]}
    assert marks == {5: True, 4: False, 1: None}
    text = str(compared)
    assert text.startswith(
        "the host waits 2 times at 1 line, 2 known waits at 1 line of the baseline left out, "
    )
    assert "train.py:5 in step" not in text
    all_known = str(report.compared(report.findings))
    assert all_known.startswith("the host waits at no new line, 4 known waits at 2 lines of the ")
    console = Console(width=300, file=io.StringIO())
    console.print(compared.table())
    assert "train.py:5 in" not in console.file.getvalue()
    assert "train.py:4 in" in console.file.getvalue()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1, "tier": 0, "findings": [{}]}'])
def test_what_is_no_report(text: str) -> None:
    with pytest.raises(DetectorError, match="no JSON report"):
        report_from_json(text)


def test_a_later_version() -> None:
    with pytest.raises(DetectorError, match="version 2, but this syncfree reads version 1"):
        report_from_json({"version": 2, "tier": 0, "findings": []})


# Text


def test_text_names_operators_once(train: str) -> None:
    nested = make_event(train, api="cuStreamSynchronize", op_stack=("aten::nonzero", "aten::index"))
    alone = make_event(train, 5, api="aten::unique", op_stack=("aten::unique",))
    text = str(make_report(nested, alone))
    assert "inside of aten::nonzero < aten::index\n" in text
    assert text.count("inside of") == 1


def test_text_names_everything(report: Report, train: str) -> None:
    text = str(report)
    assert text.startswith("the host waits 4 times at 2 lines, 1 call may wait (not counted), ")
    assert "3 allowed (meant) [a note]" in text
    assert f"{train}:5 in step: cuMemcpyDtoHAsync_v2, 2x, 500 ms, 50.0% of the wall time" in text
    assert f"{train}:4 in step: Tensor.item, 2x\n" in text
    assert f"backward of {train}:3" in text
    assert "return loss.item()" in text
    assert "cuModuleLoadData (conditional)" in text
    assert text.count("      It reads a number.\n") == 3, "the reason, of conditional ones too"
    assert text.count("# sync-ok: reason") == 1
    assert text.splitlines()[-1].startswith("A wait that is meant: `# sync-ok: reason`")


def test_text_says_where_the_rest_is(train: str) -> None:
    report = make_report(*(make_event(train, line) for line in range(1, 23)))
    assert "\n  ... and 2 findings more, which the JSON report has\n" in str(report)


def test_text_counts_lines_and_not_findings(train: str) -> None:
    """One line may run several forward lines backward, and call several functions that wait."""
    forward = [Frame(train, line, "step") for line in (1, 3)]
    report = make_report(
        *(make_event(train, 5, forward=each) for each in forward),
        make_event(train, 5, "Tensor.tolist"),
    )
    assert len(report.findings) == 3
    assert str(report).startswith("the host waits 3 times at 1 line [")
    known = str(report.compared(report.findings))
    assert known.startswith("the host waits at no new line, 3 known waits at 1 line of the base")
    many = [Frame(train, line, "step") for line in range(1, 23)]
    text = str(make_report(*(make_event(train, 5, forward=each) for each in many)))
    assert "\n  ... and 2 findings more, which the JSON report has\n" in text
    assert text.startswith("the host waits 22 times at 1 line [")


def test_the_first_copy_of_a_line_is_left_out_where_later_ones_wait(train: str) -> None:
    once = {"direction": "h2d", "verdict": Verdict.CONDITIONAL, "one_time": True}
    first = make_event(train, 4, "Tensor.to", **once)
    later = make_event(train, 4, "Tensor.to", direction="h2d")
    other = make_event(train, 5, "Tensor.to", **once)
    report = make_report(first, later, later, other)
    text = str(report)
    assert text.startswith("the host waits 2 times at 1 line, 1 call may wait (not counted) [")
    assert text.count("train.py:4 in step") == 1
    assert "train.py:5 in step: Tensor.to (conditional), 1x" in text
    assert len(report.findings) == 3


def test_text_shows_the_statement_of_several_lines(tmp_path: Path) -> None:
    file = tmp_path / "lines.py"
    file.write_text(
        "if (\n    loss.isnan()  # why\n    .any()\n):\n    pass\n"
        f"table = [\n    {', '.join(['first'] * 40)},\n    loss.item(),\n    1,\n]\n"
        f"print('{'long ' * 40}', loss.item())\n"
        f"many = (\n    loss.item(),\n{'    another,' * 20}\n)\n"
    )
    shown = {line: make_report(make_event(str(file), line)) for line in (1, 2, 8, 11, 13)}
    for line in (1, 2):
        assert "      if (loss.isnan().any()):\n" in str(shown[line])
    assert "      loss.item(), 1,]\n" in str(shown[8])
    assert f"      print('{'long ' * 40}', loss.item())\n" in str(shown[11])
    assert re.search(r"      loss\.item\(\), another,.{130,150} \.\.\.\n", str(shown[13]))
    console = Console(width=300, file=io.StringIO())
    console.print(shown[1].table())
    assert "if (loss.isnan().any()):" in console.file.getvalue()  # type: ignore[attr-defined]
    assert shown[1].json()["findings"][0]["source"] == "if ("


def test_text_of_a_pragma_without_its_reason(train: str) -> None:
    text = Path(train).read_text()
    Path(train).write_text(text.replace("return loss.item()", "return loss.item()  # sync-ok"))
    linecache.checkcache()
    assert "allows nothing without a reason" in str(make_report(make_event(train, 5)))
    assert "allows nothing without a reason" not in str(make_report(make_event(train, 4)))


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


@pytest.mark.parametrize(
    "place", ["/a/lib/python3.12/logging/__init__.py", logging.__file__, "/b/site-packages/x.py"]
)
def test_lines_of_the_program_that_call_one_line_are_apart(train: str, place: str) -> None:
    inside = Frame(place, 377, "LogRecord.getMessage")
    frames = [Frame(train, 4, "step"), Frame(train, 5, "step")]
    found = make_report(
        *[make_event(train, stack=(inside, inside, frame)) for frame in [*frames, frames[1]]]
    )
    assert [each.count for each in found.findings] == [2, 1]
    assert f"called from {train}:5 in step: return loss.item()" in str(found)
    callers = [each["caller"] for each in found.json()["findings"]]
    assert callers[1] == {
        "file": train,
        "line": 4,
        "function": "step",
        "source": 'print(f"loss {loss.item():.3f}")',
    }
    results = found.sarif(Path(train).parent)["runs"][0]["results"]
    assert len({each["partialFingerprints"]["syncfreeSite/v1"] for each in results}) == 2
    related = [each["relatedLocations"][0]["physicalLocation"] for each in results]
    assert [each["artifactLocation"]["uri"] for each in related] == ["train.py", "train.py"]
    assert [each["region"]["startLine"] for each in related] == [5, 4]


def test_advice_for_the_standard_library_is_for_the_line_that_called(train: str) -> None:
    inside = Frame(logging.__file__, 1, "LogRecord.getMessage")
    (logged,) = make_report(
        make_event(train, api="Tensor.__float__", stack=(inside, Frame(train, 4, "step")))
    ).findings
    (plain,) = make_report(make_event(train, api="Tensor.__float__")).findings
    assert logged.suggestion == plain.suggestion
    (unknown,) = make_report(make_event(train, api="Tensor.__float__", stack=(inside,))).findings
    assert unknown.suggestion != plain.suggestion


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


def test_merging_tells_what_holds_for_all_parts_together(train: str) -> None:
    """As if one recorder had seen them all, whichever comes first."""
    first = make_event(
        train, api="cuModuleLoadData", verdict=Verdict.CONDITIONAL, one_time=True, op_stack=("a",)
    )
    again = replace(first, one_time=False, op_stack=("b",))
    once, twice = make_report(first), make_report(first, again)
    both = make_report(first, first, again)
    for merged in (
        merge_ranks({0: once, 1: twice}),
        merge_ranks({0: twice, 1: once}),
        join(once, twice),
    ):
        (found,) = merged.findings
        assert (found.count, found.event.one_time, found.event.op_stack) == (3, False, ("b",))
        assert found.suggestion == both.findings[0].suggestion
        assert "seen once" not in str(merged)
    assert "seen once, the first time that this line ran" in str(merge_ranks({0: once, 1: once}))


@pytest.mark.parametrize(
    ("proofs", "merged"),
    [
        (("not proven", "proven"), "proven"),
        (("proven", "not proven"), "proven"),
        (("", "not proven"), "not proven"),
        (("", "proven", ""), "proven"),
        (("", ""), ""),
    ],
)
def test_a_rank_that_proved_it_is_enough(train: str, proofs: tuple[str, ...], merged: str) -> None:
    reports = {}
    for rank, proof in enumerate(proofs):
        report = make_report(make_event(train))
        reports[rank] = report.with_findings(replace(each, proof=proof) for each in report.findings)
    (found,) = merge_ranks(reports).findings
    assert (found.proof, found.count) == (merged, len(proofs))


def test_merging_changes_no_input(train: str) -> None:
    reports = {rank: make_report(make_event(train)) for rank in range(3)}
    before = [report.json() for report in reports.values()]
    merge_ranks(reports)
    assert [report.json() for report in reports.values()] == before
    with pytest.raises(ValueError, match="at least one"):
        merge_ranks({})


def test_what_judged_nothing_says_so_unless_a_part_did() -> None:
    nothing = Report.of([], tier=0, idle=True)
    assert str(nothing).startswith("nothing was judged: no operation on a CUDA tensor ran.")
    assert report_from_json(json.dumps(nothing.json())).idle
    assert nothing.without([]).idle
    judged = Report.of([], tier=0)
    for joined in (join(nothing, judged), merge_ranks({0: nothing, 1: judged})):
        assert str(joined) == "the host never waits [tier 0]"
    assert merge_ranks({0: nothing, 1: nothing}).idle


def test_joining_stretches_of_a_run(train: str) -> None:
    joined = join(make_report(make_event(train)), make_report(make_event(train), seconds=2.0))
    assert (joined.count, joined.seconds, joined.findings[0].ranks) == (2, 3.0, ())


def test_a_statement_of_several_lines(tmp_path: Path) -> None:
    file = tmp_path / "loop.py"
    file.write_text(
        "for step in range(\n    9\n):\n    print(\n        step,\n        loss.item(),\n    )\n"
    )
    assert Frame(str(file), 6, "<module>").statement == "print( step, loss.item(), )"
    assert Frame(str(file), 2, "<module>").statement == "for step in range( 9 ):"
    assert Frame(str(tmp_path / "gone.py"), 2, "<module>").statement == ""


def test_the_head_of_a_match(tmp_path: Path) -> None:
    file = tmp_path / "loop.py"
    file.write_text("match loss.item():\n    case 0 if x.any():\n        print(\n            1)\n")
    heads = ("match loss.item():", "case 0 if x.any():", "print( 1)")
    for line, head in enumerate(heads, 1):
        assert Frame(str(file), line, "<module>").statement == head


@pytest.mark.filterwarnings("error")
def test_reading_a_statement_says_nothing_of_the_file(tmp_path: Path) -> None:
    """Python did, when it compiled the program; a copy of it from a cache would be silent."""
    file = tmp_path / "loop.py"
    file.write_text("print(\n    '\\d',\n    loss.item(),\n)\n")
    assert Frame(str(file), 3, "<module>").statement == r"print( '\d', loss.item(), )"
