"""The pytest plugin's baseline, with pytest's own means, also with xdist."""

from __future__ import annotations

import json

import pytest

from detector_session import CONFTEST, WAITS, make_session  # noqa: F401  (a fixture)

pytest_plugins = "pytester"


@pytest.mark.parametrize("processes", [0, 2])
def test_the_ratchet(session, pytester: pytest.Pytester, processes: int) -> None:
    file = pytester.path / "syncs.json"
    options = ["--sync-baseline", file, "-n", processes]
    written = session(WAITS, *options, "--sync-baseline-update")
    written.assert_outcomes(passed=5)
    written.stdout.fnmatch_lines([f"2 known waits written to {file}"])
    assert json.loads(file.read_text()) == {
        "version": 1,
        "findings": [
            {
                "file": "test_it.py",
                "function": "helper",
                "api": "Tensor.item",
                "source": "wait()",
                "tests": ["test_it.py::test_bad"],
            },
            {
                "file": "test_it.py",
                "function": "test_some",
                "api": "Tensor.tolist",
                "source": 'wait("Tensor.tolist")',
                "tests": ["test_it.py::test_some"],
            },
        ],
    }
    known = session("# moved\n" + WAITS, *options)
    known.assert_outcomes(passed=5)
    known.stdout.no_fnmatch_line("*vanished*")

    more = session(WAITS.replace("def test_good():\n", "def test_good():\n    wait()\n"), *options)
    more.assert_outcomes(passed=4, failed=1)
    more.stdout.fnmatch_lines(["FAILED test_it.py::test_good*"])

    less = session(WAITS.replace("def helper():\n    wait()", "def helper():\n    pass"), *options)
    less.assert_outcomes(passed=5)
    less.stdout.fnmatch_lines(
        [
            "vanished, --sync-baseline-update takes it out of syncs.json: "
            "test_it.py in helper: wait()"
        ]
    )

    # What the tests of a session do not reach is not said to have vanished, nor taken out.
    some = session(WAITS, *options, "-k", "test_some")
    some.stdout.no_fnmatch_line("*vanished*")
    before = file.read_text()
    session(WAITS, *options, "-k", "test_some", "--sync-baseline-update").assert_outcomes(passed=2)
    assert file.read_text() == before


def test_the_ratchet_knows_who_called_a_package(session, pytester: pytest.Pytester) -> None:
    package = pytester.mkdir("site-packages")
    (package / "counting_of_test.py").write_text(
        "from detector_stub import wait\n\ndef update():\n    wait()\n"
    )
    test = """
import sys, pytest
sys.path.insert(0, "site-packages")
from counting_of_test import update

@pytest.mark.no_sync
def test_known():
    update()
"""
    options = ["--sync-baseline", "syncs.json"]
    session(test, *options, "--sync-baseline-update").assert_outcomes(passed=1)
    (written,) = json.loads((pytester.path / "syncs.json").read_text())["findings"]
    assert written["file"] == "site-packages/counting_of_test.py"
    assert written["caller"]["function"] == "test_known"
    more = session(test + test[test.index("@") :].replace("known", "new"), *options)
    more.assert_outcomes(passed=1, failed=1)
    more.stdout.fnmatch_lines(["FAILED test_it.py::test_new*"])
    more.stdout.no_fnmatch_line("*vanished*")
    # A baseline without callers knows the wait whoever calls.
    del written["caller"]
    old = {"version": 1, "findings": [written]}
    (pytester.path / "syncs.json").write_text(json.dumps(old))
    known = session(test, *options)
    known.assert_outcomes(passed=1)
    known.stdout.no_fnmatch_line("*vanished*")


def test_a_baseline_that_is_missing_or_none(session, pytester: pytest.Pytester) -> None:
    missing = session(WAITS, "--sync-baseline", "none.json")
    missing.stderr.fnmatch_lines(
        ["ERROR: --sync-baseline: there is no baseline */none.json: run once with "
         "--sync-baseline-update to write it"]
    )  # fmt: skip
    assert missing.ret == pytest.ExitCode.USAGE_ERROR
    assert "Traceback" not in str(missing.stderr)
    (pytester.path / "none.json").write_text("[]")
    none = session(WAITS, "--sync-baseline", "none.json", "--sync-baseline-update")
    none.stderr.fnmatch_lines(["ERROR: --sync-baseline: */none.json is no baseline of *"])
    assert none.ret == pytest.ExitCode.USAGE_ERROR
    nowhere = session(WAITS, "--sync-baseline", "no/such.json", "--sync-baseline-update")
    nowhere.stderr.fnmatch_lines(
        ["ERROR: --sync-baseline: cannot write */no/such.json: its folder */no does not exist*"]
    )
    assert nowhere.ret == pytest.ExitCode.USAGE_ERROR
    (pytester.path / "folder").mkdir()
    folder = session(WAITS, "--sync-baseline", "folder", "--sync-baseline-update")
    folder.stderr.fnmatch_lines(["ERROR: --sync-baseline: cannot write */folder: it is a folder*"])
    assert folder.ret == pytest.ExitCode.USAGE_ERROR
    alone = session(WAITS, "--sync-baseline-update")
    alone.stderr.fnmatch_lines(["*--sync-baseline-update needs --sync-baseline FILE*"])
    assert alone.ret == pytest.ExitCode.USAGE_ERROR


def test_a_baseline_that_cannot_be_written_fails_the_session(
    session, pytester: pytest.Pytester
) -> None:
    full = """
from pathlib import Path

def write_text(self, *arguments, **keywords):
    raise OSError(28, "No space left on device")

Path.write_text = write_text
"""
    pytester.makeconftest(CONFTEST + full)
    test = "import pytest\n@pytest.mark.no_sync\ndef test_good():\n    pass"
    result = session(test, "--sync-baseline", "syncs.json", "--sync-baseline-update")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["--sync-baseline-update: cannot write the baseline */syncs.json: No space left on device"]
    )
    result.stdout.no_fnmatch_line("*written to*")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "INTERNALERROR" not in f"{result.stdout}{result.stderr}"


STAGES = """
import pytest
from detector_stub import wait

def helper():
    wait()

@pytest.fixture
def made():
    {fixture}

@pytest.mark.no_sync
def test_first(made):
    wait("Tensor.before")
    {body}
    helper()

@pytest.mark.no_sync
def test_second():
    {second}
"""
SOUND = {"fixture": "pass", "body": "pass", "second": "helper()"}
ONLY_FIRST = {**SOUND, "second": "pass"}


@pytest.mark.parametrize(
    "broken",
    [{"fixture": "raise KeyError"}, {"body": "raise KeyError"}, {"body": "pytest.skip('why')"}],
    ids=["fixture fails", "body fails", "body is skipped"],
)
def test_what_a_test_did_not_get_to_is_still_known(
    session, pytester: pytest.Pytester, broken: dict[str, str]
) -> None:
    file = pytester.path / "syncs.json"
    options = ["--sync-baseline", file]
    session(STAGES.format(**ONLY_FIRST), *options, "--sync-baseline-update")
    before = file.read_text()
    assert len(json.loads(before)["findings"]) == 2
    source = STAGES.format(**{**ONLY_FIRST, **broken})
    compared = session(source, *options)
    compared.stdout.no_fnmatch_line("*vanished*")
    session(source, *options, "--sync-baseline-update")
    assert file.read_text() == before
    compared = session(STAGES.format(**ONLY_FIRST).replace("    helper()", "    pass"), *options)
    compared.stdout.fnmatch_lines(["vanished, *: test_it.py in helper: wait()"])


def test_what_a_broken_test_and_another_one_reach_is_known_once(
    session, pytester: pytest.Pytester
) -> None:
    file = pytester.path / "syncs.json"
    options = ["--sync-baseline", file, "--sync-baseline-update"]
    session(STAGES.format(**ONLY_FIRST), *options)
    broken = {**SOUND, "body": "wait('Tensor.new'); raise KeyError"}
    session(STAGES.format(**broken), *options).assert_outcomes(passed=1, failed=1)
    tests = {each["api"]: each["tests"] for each in json.loads(file.read_text())["findings"]}
    first, second = "test_it.py::test_first", "test_it.py::test_second"
    assert tests == {
        "Tensor.before": [first],
        "Tensor.new": [first],
        "Tensor.item": [first, second],
    }
    assert file.read_text().count('"api"') == 3
