"""The pytest plugin, with pytest's own means: marker, fixture, baseline, xdist."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

import syncfree

pytest_plugins = "pytester"

PLUGIN = "syncfree.detector.pytest_plugin"
IS_INSTALLED = any(
    entry.value == PLUGIN for entry in importlib.metadata.entry_points(group="pytest11")
)

# The tier of these sessions is a stub: a wait is a call of `wait`.
CONFTEST = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import detector_stub
from syncfree.detector import tiers
tiers._made = lambda number, recorder: detector_stub.StubTier(recorder, 0)
tiers.has_gpu = lambda: False  # without torch, whose import takes seconds
"""

WAITS = """
import pytest
from detector_stub import wait

def helper():
    wait()

@pytest.mark.no_sync
def test_good():
    pass

@pytest.mark.no_sync
def test_bad():
    helper()

@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.no_sync(max=1)
def test_some(n):
    for _ in range(n):
        wait("Tensor.tolist")

def test_unmarked():
    wait()
"""


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Runs pytest on a module and returns its result."""
    packages = [str(Path(place).parent) for place in syncfree.__path__]
    monkeypatch.setenv("PYTHONPATH", ":".join([*packages, *sys.path]))
    pytester.makeconftest(CONFTEST)

    def run(source: str, *options: object) -> pytest.RunResult:
        pytester.makepyfile(test_it=source)
        plugin = [] if IS_INSTALLED else ["-p", PLUGIN]
        given = map(str, options)
        return pytester.runpytest_subprocess(*plugin, "-p", "no:cacheprovider", *given)

    return run


def test_the_marker(session) -> None:
    result = session(WAITS)
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines(
        [
            "at most 0 allowed, but the host waits 1 time at 1 line *",
            "*test_it.py:5 in helper: Tensor.item, 1x",
            "FAILED test_it.py::test_bad*",
            "FAILED test_it.py::test_some?2?*",
        ]
    )


def test_the_marker_with_warm_up_and_exceptions(session) -> None:
    result = session(
        """
        import pytest
        from detector_stub import wait
        calls = []

        @pytest.fixture
        def first():
            return not calls

        @pytest.mark.no_sync(warmup=2)
        def test_lazy(first, tmp_path):
            calls.append(tmp_path)
            if len(calls) <= 2:
                wait()

        def test_how_often():
            assert len(calls) == 3

        @pytest.mark.no_sync(allow=["aten::*"])
        def test_allowed():
            wait("aten::nonzero")

        @pytest.mark.no_sync
        def test_its_own_error():
            wait()
            raise KeyError("its own")

        @pytest.mark.no_sync(3)
        def test_positional(): ...

        @pytest.mark.no_sync(limit=3)
        def test_unknown(): ...

        @pytest.mark.no_sync(warmup=-1)
        def test_negative(): ...

        @pytest.mark.no_sync(max="two")
        def test_text(): ...

        def test_fixture(no_sync):
            with pytest.raises(ValueError, match="^max is a count of at least 0, but got 2.5"):
                no_sync(max=2.5)
        """
    )
    result.assert_outcomes(passed=4, failed=5)
    result.stdout.fnmatch_lines(
        [
            "*KeyError: 'its own'",
            "*test_positional: the marker no_sync: it takes max, allow, warmup by name, but got 3",
            "*test_unknown: the marker no_sync: it takes max, allow, warmup by name, *limit=3",
            "*test_negative: the marker no_sync: warmup is a count of at least 0, but got -1",
            "*test_text: the marker no_sync: max is a count of at least 0, but got 'two'",
        ]
    )
    # One line each: whoever wrote the marker is not led through the plugin.
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")
    result.stdout.no_fnmatch_line("*max_syncs*")


def test_the_fixture(session) -> None:
    result = session(
        """
        import pytest
        from syncfree.errors import SyncError
        from detector_stub import wait

        def test_block(no_sync):
            wait()
            with no_sync(max=1) as report:
                wait()
            assert report.count == 1
            with pytest.raises(SyncError), no_sync():
                wait()

        def test_loop(no_sync):
            guard = no_sync(warmup=2)
            for step in range(5):
                with guard:
                    if step < 2:
                        wait()
            with pytest.raises(SyncError), guard:
                wait()
        """
    )
    result.assert_outcomes(passed=2)


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


def test_a_tier_that_this_machine_lacks(session) -> None:
    """One line a test: a traceback would lead into the plugin."""
    refused = """
import pytest
from syncfree.detector import tiers

def refuse(number, recorder):
    raise tiers.TierUnavailableError(f"tier {number} needs a GPU")

tiers._made = refuse

@pytest.mark.no_sync
def test_it():
    pass
"""
    done = session(refused, "--sync-tier", 3)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["--sync-tier: tier 3 needs a GPU"])
    done.stdout.no_fnmatch_line("*pytest_plugin.py*")


def test_the_marker_is_registered(session) -> None:
    result = session(WAITS, "--strict-markers", "--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.no_sync(max=0, allow=[[]], warmup=0):*"])


def test_no_torch_before_it_is_used() -> None:
    code = f"import sys, {PLUGIN}; print('torch' in sys.modules, 'rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["False", "False"], done.stderr


def test_the_entry_point_names_the_plugin() -> None:
    text = (Path(__file__).parent.parent / "pyproject.toml").read_text()
    assert f'[project.entry-points.pytest11]\nsyncfree = "{PLUGIN}"\n' in text
