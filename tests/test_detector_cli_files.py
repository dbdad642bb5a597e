"""What `syncfree syncs` writes and compares: reports, baselines, several ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from syncfree.detector import Event, Frame, Recorder, Report, Verdict
from syncfree.detector.github import as_github
from syncfree.detector.table import as_table
from syncs_command import ENVIRONMENT, TRAIN, syncs, syncs_alone

pytestmark = pytest.mark.usefixtures("stub_in_a_folder")


def test_json_and_sarif(script) -> None:
    path = script(TRAIN)
    assert syncs("--json", "a.json", "--sarif", "a.sarif", path) == 1
    document = json.loads(Path("a.json").read_text())
    assert (document["version"], document["tier"]) == (1, 0)
    (found,) = document["findings"]
    assert (found["file"], found["line"], found["count"]) == (path, 15, 4)
    outermost = found["stack"][-1]  # nothing of what started the script
    assert (outermost["file"], outermost["function"]) == (path, "<module>")
    (run,) = json.loads(Path("a.sarif").read_text())["runs"]
    (result,) = run["results"]
    location = result["locations"][0]["physicalLocation"]
    assert location["artifactLocation"] == {"uri": "train.py", "uriBaseId": "SRCROOT"}
    assert location["region"]["startLine"] == 15


def test_annotations_for_github(script, capsys: pytest.CaptureFixture[str]) -> None:
    path = script(TRAIN.replace('wait("Tensor.item")', 'wait("a:b,c%")'))
    assert syncs("--github", path) == 1
    (found,) = (each for each in capsys.readouterr().out.splitlines() if each.startswith("::"))
    assert found.startswith(
        "::error file=train.py,line=15,title=The host waits for the GPU (a%3Ab%2Cc%25%2C 4x)::"
    )
    assert syncs("--baseline", "b.json", "--baseline-update", path) == 0
    assert syncs("--baseline", "b.json", "--github", path) == 0
    assert "::error" not in capsys.readouterr().out
    assert syncs(path) == 1
    assert "::error" not in capsys.readouterr().out


def test_an_annotation_stands_at_the_line_of_the_program(tmp_path: Path) -> None:
    stack = (
        Frame("/lib/site-packages/package/a.py", 5, "count"),
        Frame(str(tmp_path / "lib" / "train.py"), 7, "step"),
    )
    recorder = Recorder()
    recorder.record(Event("aten::bincount", Verdict.SYNC, "Why.", stack))
    recorder.record(Event("cuMemFree", Verdict.CONDITIONAL, "Why.", stack))
    (line,) = as_github(Report.of(recorder.findings(), tier=0), tmp_path)
    assert line.startswith("::error file=lib/train.py,line=7,title=")
    assert "::Why. bincount reads its largest value." in line


def test_baseline(script, capsys: pytest.CaptureFixture[str]) -> None:
    path = script(TRAIN)
    assert syncs("--baseline", "b.json", "--baseline-update", path) == 0
    assert syncs("--baseline", "b.json", path) == 0
    shown = capsys.readouterr()
    assert (
        "the host waits at no new line, 4 known waits at 1 line of the baseline left out"
    ) in shown.out
    assert "never waits" not in shown.out
    script(TRAIN.replace("    optimizer.step()", "    optimizer.step()\n    wait()"))
    assert syncs("--baseline", "b.json", "--json", "a.json", "--sarif", "a.sarif", path) == 1
    document = json.loads(Path("a.json").read_text())
    assert (document["count"], document["known_count"]) == (4, 4)
    marks = {each["line"]: each["known"] for each in document["findings"]}
    (run,) = json.loads(Path("a.sarif").read_text())["runs"]
    assert marks == {12: False, 16: True}
    assert [each["baselineState"] for each in run["results"]] == ["new", "unchanged"]
    shown = capsys.readouterr().out
    assert "train.py:12 in train_step" in shown
    assert "# guilty" not in shown
    script(TRAIN.replace("wait(", "str("))
    assert syncs("--baseline", "b.json", path) == 0
    assert (
        "vanished, --baseline-update takes it out of the baseline: train.py in <module>: wait("
    ) in capsys.readouterr().err
    # A program that fails did not get to all of them.
    script(TRAIN.replace("wait(", "no_such("))
    assert syncs("--baseline", "b.json", path) == 2
    assert "vanished" not in capsys.readouterr().err
    before = Path("b.json").read_text()
    assert syncs("--baseline", "b.json", "--baseline-update", path) == 2
    assert "the baseline was left as it is" in capsys.readouterr().err
    assert Path("b.json").read_text() == before


def test_a_program_may_change_its_folder(
    script, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script("from detector_stub import wait\nwait()\nimport os\nos.chdir('inner')\nwait('x')")
    (tmp_path / "inner").mkdir()

    def run(*options: str) -> int:
        os.chdir(tmp_path)
        return syncs(*options, "train.py")

    assert run("--github", "--json", "a.json", "--sarif", "a.sarif") == 1
    assert capsys.readouterr().out.count("::error file=train.py,line=") == 2
    assert json.loads((tmp_path / "a.json").read_text())["count"] == 2
    (log,) = json.loads((tmp_path / "a.sarif").read_text())["runs"]
    assert log["originalUriBaseIds"]["SRCROOT"]["uri"] == f"{tmp_path.as_uri()}/"
    assert run("--baseline", "b.json", "--baseline-update") == 0
    known = json.loads((tmp_path / "b.json").read_text())["findings"]
    assert [each["file"] for each in known] == ["train.py", "train.py"]
    assert run("--baseline", "b.json") == 0


def test_names_in_the_table_are_relative_to_the_first_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    stack = (Frame(str(tmp_path / "inner" / "a.py"), 5, "step"),)
    recorder.record(Event("Tensor.item", Verdict.SYNC, "Why.", stack))
    report = Report.of(recorder.findings(), tier=0)
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    (place,) = as_table(report, tmp_path).columns[-1].cells
    assert str(place).startswith("inner/a.py:5 in step")


@pytest.mark.parametrize("encoding", ["ascii", "ascii:surrogateescape"])
def test_a_report_that_standard_output_cannot_encode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    monkeypatch.setitem(ENVIRONMENT, "PYTHONIOENCODING", encoding)
    done, found = syncs_alone(tmp_path, "from detector_stub import wait\nwait()  # é")
    assert done.returncode == 1, done.stderr
    assert "wait()  # \\xe9" in done.stdout
    assert found["findings"][0]["source"] == "wait()  # é"


def test_files_are_written_although_nothing_can_be_printed(
    script, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("closed")

    monkeypatch.setattr(sys.stdout, "write", refuse)
    with pytest.raises(RuntimeError, match="closed"):
        syncs("--json", "a.json", script("from detector_stub import wait\nwait()"))
    assert json.loads(Path("a.json").read_text())["count"] == 1


def test_a_pragma_makes_it_clean(script, capsys: pytest.CaptureFixture[str]) -> None:
    path = script(TRAIN.replace("# guilty", "# sync-ok: it is the point of this script"))
    assert syncs(path) == 0
    assert "4 allowed (it is the point of this script)" in capsys.readouterr().out


@pytest.mark.slow
def test_ranks_are_merged(script, tmp_path: Path) -> None:
    path = script(
        """
        import os
        from detector_stub import wait
        wait("everywhere")
        if os.environ["RANK"] == "1":
            wait("on rank 1")
        """
    )
    # Rank 0 shows the findings of all and says so in its status.
    runner = tmp_path / "runner.py"
    runner.write_text(
        "import os, sys, detector_stub\n"
        "from syncfree.detector import tiers\n"
        "tiers._made = lambda number, recorder: detector_stub.StubTier(recorder)\n"
        "from syncfree.cli import main\n"
        "status = main(['syncs', *sys.argv[1:]])\n"
        "assert status == (os.environ['RANK'] == '0'), status\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone",
         str(runner), "--json", "all.json", path],
        env={**os.environ, "PYTHONPATH": ":".join([str(Path(__file__).parent), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "all.json").read_text())
    ranks = {each["api"]: (each["count"], each["ranks"]) for each in document["findings"]}
    assert ranks == {"everywhere": (2, [0, 1]), "on rank 1": (1, [1])}
    assert done.stdout.count("the host waits 3 times at 2 lines") == 1
