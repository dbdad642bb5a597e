"""`syncfree syncs` of programs that fail, and of what cannot be done."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from syncfree.cli.syncs import program
from syncs_command import TRAIN, syncs

pytestmark = pytest.mark.usefixtures("stub_in_a_folder")


# Programs that fail
NOT_JUDGED = "before the program failed: what it did not get to is not judged"


def test_an_exception_keeps_its_traceback(script, capsys: pytest.CaptureFixture[str]) -> None:
    path = script(
        """
        from detector_stub import wait

        def fails():
            wait()
            raise KeyError("its own")

        fails()
        """
    )
    assert syncs(path) == 2
    shown = capsys.readouterr()
    assert re.fullmatch(
        r"Traceback \(most recent call last\):\n"
        rf'  File "{path}", line 7, in <module>\n    fails\(\)\n'
        rf'  File "{path}", line 5, in fails\n    raise KeyError\("its own"\)\n'
        r"KeyError: 'its own'\n",
        shown.err[: shown.err.index("no iteration")],
    )
    assert f"the host waits 1 time at 1 line {NOT_JUDGED}" in shown.out


def test_a_program_in_a_folder_beside_the_package_keeps_its_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As syncfree_plugins, whose path begins as that of the package does."""
    file = f"{Path(program.__file__).parents[2]}_plugins/train.py"
    with pytest.raises(ZeroDivisionError) as caught:
        exec(compile("1 / 0", file, "exec"))
    assert caught.value.__traceback__ is not None
    program.show_error(caught.value.with_traceback(caught.value.__traceback__.tb_next))
    assert f'File "{file}", line 1, in <module>' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "status"),
    [("", 0), ("0", 0), ("None", 0), ("3", 2), ("'a message'", 2)],
)
def test_sys_exit(script, capsys: pytest.CaptureFixture[str], code: str, status: int) -> None:
    assert syncs(script(f"import sys\nsys.exit({code})")) == status
    shown = capsys.readouterr()
    assert ("the program exited with" in shown.err) == (status == 2)
    assert ("the host never waits" in shown.out) == (status == 0)
    assert (NOT_JUDGED in shown.out) == (status == 2)


def test_a_syntax_error(script, capsys: pytest.CaptureFixture[str]) -> None:
    assert syncs("--json", "a.json", script("x = = 3")) == 2
    shown = capsys.readouterr()
    assert "SyntaxError: invalid syntax" in shown.err
    assert "syncfree/cli" not in shown.err
    assert shown.out.startswith(f"no wait was found {NOT_JUDGED} [")
    assert json.loads(Path("a.json").read_text())["failed"] is True


def test_a_call_that_a_tier_does_not_support(script, capsys: pytest.CaptureFixture[str]) -> None:
    path = script(
        """
        from syncfree.errors import DetectorError
        raise DetectorError("torch.cuda.CUDAGraph is not supported without a GPU")
        """
    )
    assert syncs(path) == 2
    shown = capsys.readouterr().err
    assert "syncfree syncs: torch.cuda.CUDAGraph is not supported without a GPU" in shown
    assert f"{path}:2 in <module>" in shown
    assert "Traceback" not in shown


def test_an_error_of_syncfree_in_the_program_is_the_program_s(
    script, capsys: pytest.CaptureFixture[str]
) -> None:
    path = script(
        """
        import syncfree
        from detector_stub import wait

        wait()
        region = syncfree.EventTimer().start("step")
        region.stop()
        region.stop()
        """
    )
    assert syncs("--json", "a.json", path) == 2
    shown = capsys.readouterr()
    assert f'File "{path}", line 7, in <module>' in shown.err
    assert "TimerError: region 'step' is not open" in shown.err
    assert f"the host waits 1 time at 1 line {NOT_JUDGED}" in shown.out
    assert json.loads(Path("a.json").read_text())["failed"] is True


def test_a_run_whose_time_is_up_says_so(script, capsys: pytest.CaptureFixture[str]) -> None:
    assert syncs("--seconds", 0.1, script("import time\ntime.sleep(60)")) == 0
    assert "stopped after 0.1 s: the report is of the run so far" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.py"], "none.py is neither a script that exists nor module:function"),
        (["no_such_module:main"], "there is no module no_such_module"),
        (["train.py:main"], "named without .py, as in train:main"),
        (["json:no_such"], "json:no_such: json has no no_such"),
        (["--tier", "5", "train.py"], "--tier is one of auto, 0, 2, 3, but got 5"),
        (["--warmup", "-1", "train.py"], "--warmup is a count of at least 0, but got -1"),
        (["--steps", "0", "train.py"], "--steps is a count of at least 1, but got 0"),
        (["--seconds", "0", "train.py"], "--seconds is a time above 0"),
        (["--seconds", "nan", "train.py"], "--seconds is a time above 0 and up to 1e+08, but got"),
        (["--seconds", "inf", "train.py"], "but got inf"),
        (["--seconds", "1e12", "train.py"], "but got 1000000000000.0"),
        (["--prove", "train.py"], "--prove puts a spinning kernel"),
        (["--json", "no/such/folder.json", "train.py"], "no/such does not exist"),
        (["--sarif", ".", "train.py"], "cannot write .: it is a folder; name a file in it"),
        (["--baseline", "none.json", "train.py"], "run once with --baseline-update to write it"),
        (["--baseline", "no/such.json", "train.py"], "there is no baseline no/such.json"),
        (["--baseline", ".", "train.py"], "cannot read the baseline ."),
        (["--baseline", "no/b.json", "--baseline-update", "train.py"], "cannot write no/b.json"),
        (["--baseline-update", "train.py"], "--baseline-update needs the file"),
        (["--json", "./train.py", "train.py"], "--json is the same file as the program, train.py"),
        (["--json", "s.x", "--sarif", "./s.x", "train.py"], "--sarif is the same file as --json"),
        (
            ["--baseline", "train.py", "--baseline-update", "train.py"],
            "--baseline is the same file as the program",
        ),
        (
            ["--baseline", "b.x", "--baseline-update", "--json", "b.x", "train.py"],
            "--json is the same file as --baseline",
        ),
        (["--step-function", "none", "train.py"], "defines no function of this name"),
        (["--step-function", "main", "json:dumps"], "needs its module"),
        (["--step-function", "torch:none", "train.py"], "torch has no none"),
        (["--step-function", "math:pi", "train.py"], "this is no function, but a float"),
    ],
)
def test_what_cannot_be_done(
    script, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    script(TRAIN)
    assert syncs(*arguments) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.err.startswith("syncfree syncs: ")
    assert "finished" not in shown.out


UPDATE = ["--baseline-update", "--baseline"]


@pytest.mark.parametrize("option", [["--json"], ["--sarif"], UPDATE])
def test_a_folder_that_takes_no_files_is_refused_before_the_run(
    script, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, option: list[str]
) -> None:
    monkeypatch.setattr("os.access", lambda place, mode: False)  # root may write anywhere
    assert syncs(*option, "file", script(TRAIN)) == 2
    shown = capsys.readouterr()
    assert f"cannot write file: you may not write in its folder {Path.cwd()}" in shown.err
    assert "finished" not in shown.out


@pytest.mark.parametrize(
    ("option", "other"), [(["--json"], "--sarif"), (["--sarif"], "--json"), (UPDATE, "--sarif")]
)
def test_a_file_that_cannot_be_written_costs_neither_report_nor_other_files(
    script, capsys: pytest.CaptureFixture[str], option: list[str], other: str
) -> None:
    full = "/dev/full"  # opens, and refuses every byte
    assert syncs(*option, full, other, "other", script(TRAIN)) == 2
    shown = capsys.readouterr()
    assert "the host waits 4 times at 1 line" in shown.out
    assert f"{full}: No space left on device" in shown.err
    assert json.loads(Path("other").read_text())
