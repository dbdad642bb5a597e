"""`syncfree syncs`: how it runs programs, what it shows, writes and returns."""

from __future__ import annotations

import json
import linecache
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import detector_stub
from syncfree.cli import main

TRAIN = """
import sys
import torch
from detector_stub import wait

net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
wait("Tensor.setup")

def train_step():
    net(torch.ones(2)).sum().backward()
    optimizer.step()

for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 4):
    train_step()
    wait("Tensor.item")  # guilty
print("finished", step + 1)
"""


@pytest.fixture(autouse=True)
def _stub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    detector_stub.install(monkeypatch)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def script(tmp_path: Path):
    """Writes a script and returns its path."""

    def write(text: str, name: str = "train.py") -> str:
        (tmp_path / name).write_text(textwrap.dedent(text).lstrip())
        linecache.checkcache()
        return str(tmp_path / name)

    return write


def syncs(*arguments: object) -> int:
    before = sys.argv, list(sys.path), sys.modules["__main__"], signal.getsignal(signal.SIGALRM)
    status = main(["syncs", *map(str, arguments)])
    after = sys.argv, list(sys.path), sys.modules["__main__"], signal.getsignal(signal.SIGALRM)
    assert after == before
    assert not detector_stub.is_active()
    return status


def findings(*arguments: object) -> dict[str, int]:
    """Counts by api."""
    syncs("--json", "found.json", *arguments)
    document = json.loads(Path("found.json").read_text())
    return {each["api"]: each["count"] for each in document["findings"]}


# The program


def test_a_script_runs_as_its_own(script, capsys: pytest.CaptureFixture[str]) -> None:
    path = script(
        """
        import os, pickle, sys
        import neighbour

        class Thing:
            pass

        if __name__ == "__main__":
            assert os.path.abspath(sys.argv[0]) == __file__
            assert sys.argv[1:] == ["--flag", "--tier", "x"]
            assert os.path.isabs(__file__)
            assert __spec__ is None
            assert sys.modules["__main__"].Thing is Thing
            assert type(pickle.loads(pickle.dumps(Thing()))) is Thing
            print("ran with", neighbour.value)
        """
    )
    script("value = 7", "neighbour.py")
    assert syncs("train.py", "--flag", "--tier", "x") == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("ran with 7\n")
    assert "the host never waits" in shown.out
    assert syncs(path, "--flag", "--tier", "x") == 0


def test_a_function_of_a_module(script, capsys: pytest.CaptureFixture[str]) -> None:
    script(
        """
        import sys
        from detector_stub import wait

        class Trainer:
            @staticmethod
            def fit():
                print(sys.argv[1:])
                wait()
        """,
        "package_of_test.py",
    )
    assert syncs("package_of_test:Trainer.fit", "a", "b") == 1
    assert capsys.readouterr().out.startswith("['a', 'b']\n")


def test_findings_are_shown_with_source_and_advice(
    script, capsys: pytest.CaptureFixture[str]
) -> None:
    script(TRAIN)
    assert syncs("train.py") == 1
    shown = capsys.readouterr()
    assert shown.out.startswith("finished 4\n")
    assert "/train.py:15 in <module>: Tensor.item, 4x\n" in shown.out
    assert 'wait("Tensor.item")  # guilty' in shown.out
    assert "Go on with the 0-d tensor" in shown.out
    assert "Tensor.setup" not in shown.out
    assert "3 iterations judged, 1 before them left out" in shown.err


# Iterations


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), {"Tensor.item": 4}),
        (("--warmup", 0), {"Tensor.item": 4, "Tensor.setup": 1}),
        (("--warmup", 2), {"Tensor.item": 3}),
        (("--warmup", 3, "--steps", 1), {"Tensor.item": 1}),
        (("--steps", 2), {"Tensor.item": 2}),
        # Too few iterations: better too much than nothing.
        (("--warmup", 4), {"Tensor.item": 4, "Tensor.setup": 1}),
        (("--warmup", 9), {"Tensor.item": 4, "Tensor.setup": 1}),
        (("--step-function", "train_step"), {"Tensor.item": 4}),
        (("--step-function", "train:train_step", "--steps", 1), {"Tensor.item": 1}),
        (("--step-function", "torch:ones", "--warmup", 3), {"Tensor.item": 2}),
    ],
    ids=str,
)
def test_warm_up_and_steps(script, options: tuple, expected: dict) -> None:
    assert findings(*options, script(TRAIN)) == expected


def test_a_method_of_the_script_as_step(script) -> None:
    path = script(
        """
        from detector_stub import wait
        import functools

        class Trainer:
            @functools.lru_cache
            def step(self, n):
                wait("in step")

        trainer = Trainer()
        for n in range(5):
            trainer.step(n)
        """
    )
    assert findings("--step-function", "Trainer.step", "--warmup", 2, path) == {"in step": 3}


def test_without_iterations_everything_counts(script, capsys: pytest.CaptureFixture[str]) -> None:
    path = script("from detector_stub import wait\nwait()")
    assert syncs(path) == 1
    assert "no iteration ended (by a call of optimizer.step()): the warm-up is part of" in (
        capsys.readouterr().err
    )


def test_the_run_ends_after_its_steps_and_cleans_up(
    script, capsys: pytest.CaptureFixture[str]
) -> None:
    path = script(
        """
        import sys
        from detector_stub import wait

        def step():
            wait()

        try:
            while True:
                try:
                    step()
                except Exception:
                    print("not to be seen")
        finally:
            print("cleaned up")
        """
    )
    assert syncs("--step-function", "step", "--steps", 3, path) == 1
    assert capsys.readouterr().out.startswith("cleaned up\n")


@pytest.mark.parametrize("body", ["time.sleep(0.01)", "step()"])
def test_the_run_ends_when_its_time_is_up(script, body: str) -> None:
    path = script(
        f"""
        import time
        from detector_stub import wait

        def step():
            time.sleep(0.01)
            wait()

        while True:
            {body}
        """
    )
    began = time.monotonic()
    status = syncs("--step-function", "step", "--seconds", 0.3, path)
    assert status == (1 if body == "step()" else 0)
    assert time.monotonic() - began < 4


def test_ctrl_c_ends_the_run_with_the_report(script, interruptible: None) -> None:
    path = script(
        """
        import time
        from detector_stub import wait
        wait()
        print("running", flush=True)
        time.sleep(60)
        """
    )
    code = (
        "import detector_stub, sys\n"
        "from syncfree.detector import tiers\n"
        "tiers._made = lambda number, recorder: detector_stub.StubTier(recorder)\n"
        "from syncfree.cli import main\n"
        "sys.exit(main(['syncs', *sys.argv[1:]]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, path],
        env={**os.environ, "PYTHONPATH": ":".join([str(Path(__file__).parent), *sys.path])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGINT)
    shown, notes = process.communicate(timeout=60)
    assert process.returncode == 1, notes
    assert "the host waits 1 time at 1 line" in shown
    assert "interrupted: the report is of the run so far" in notes
    assert "Traceback" not in notes


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
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.py"], "none.py is neither a script that exists nor module:function"),
        (["no_such_module:main"], "there is no module no_such_module"),
        (["json:no_such"], "json:no_such: json has no no_such"),
        (["--tier", "5", "train.py"], "--tier is one of auto, 0, 2, 3, but got 5"),
        (["--warmup", "-1", "train.py"], "--warmup is a count of at least 0, but got -1"),
        (["--steps", "0", "train.py"], "--steps is a count of at least 1, but got 0"),
        (["--seconds", "0", "train.py"], "--seconds is a time above 0"),
        (["--prove", "train.py"], "--prove puts a spinning kernel"),
        (["--json", "no/such/folder.json", "train.py"], "its folder does not exist"),
        (["--sarif", ".", "train.py"], "or it is a folder"),
        (["--baseline", "none.json", "train.py"], "run once with --baseline-update to write it"),
        (["--baseline", "no/such.json", "train.py"], "there is no baseline no/such.json"),
        (["--baseline", ".", "train.py"], "cannot read the baseline ."),
        (["--baseline", "no/b.json", "--baseline-update", "train.py"], "cannot write no/b.json"),
        (["--baseline-update", "train.py"], "--baseline-update needs the file"),
        (["--step-function", "none", "train.py"], "defines no function of this name"),
        (["--step-function", "main", "json:dumps"], "needs its module"),
        (["--step-function", "torch:none", "train.py"], "torch has no none"),
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


# Files


def test_json_and_sarif(script) -> None:
    path = script(TRAIN)
    assert syncs("--json", "a.json", "--sarif", "a.sarif", path) == 1
    document = json.loads(Path("a.json").read_text())
    assert (document["version"], document["tier"]) == (1, 0)
    (found,) = document["findings"]
    assert (found["file"], found["line"], found["count"]) == (path, 15, 4)
    (run,) = json.loads(Path("a.sarif").read_text())["runs"]
    (result,) = run["results"]
    location = result["locations"][0]["physicalLocation"]
    assert location["artifactLocation"] == {"uri": "train.py", "uriBaseId": "SRCROOT"}
    assert location["region"]["startLine"] == 15


def test_baseline(script, capsys: pytest.CaptureFixture[str]) -> None:
    path = script(TRAIN)
    assert syncs("--baseline", "b.json", "--baseline-update", path) == 0
    assert syncs("--baseline", "b.json", path) == 0
    shown = capsys.readouterr()
    assert "1 known sites of the baseline left out" in shown.err
    script(TRAIN.replace("    optimizer.step()", "    optimizer.step()\n    wait()"))
    assert syncs("--baseline", "b.json", path) == 1
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


def test_a_pragma_makes_it_clean(script, capsys: pytest.CaptureFixture[str]) -> None:
    path = script(TRAIN.replace("# guilty", "# sync-ok: it is the point of this script"))
    assert syncs(path) == 0
    assert "4 allowed (it is the point of this script)" in capsys.readouterr().out


# Several processes


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
