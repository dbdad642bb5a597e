"""`syncfree syncs`: how it runs programs, what it shows, writes and returns."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from syncs_command import TRAIN, findings, syncs

pytestmark = pytest.mark.usefixtures("stub_in_a_folder")


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
            assert __builtins__.len is len
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


def test_all_lines_are_shown_where_they_are_many(
    script, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a file or a pipe as on a terminal; only a report in a message of an error is short."""
    script("from detector_stub import wait\n" + 'wait("Tensor.item")\n' * 25)
    assert syncs("train.py") == 1
    shown = capsys.readouterr().out
    assert shown.count("in <module>: Tensor.item, 1x\n") == 25
    assert "which the JSON report has" not in shown


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


def test_a_generator_ends_an_iteration_with_its_body(script) -> None:
    """Not when it is made, before its body runs."""
    path = script(
        """
        from detector_stub import wait

        def parts(n):
            sent = yield n
            assert sent == "forward"
            wait(f"step {n}")
            return n + 1

        for n in range(5):
            step = parts(n)
            assert next(step) == n
            try:
                step.send("forward")
            except StopIteration as end:
                assert end.value == n + 1
        """
    )
    found = findings("--step-function", "parts", "--warmup", 2, "--steps", 2, path)
    assert found == {"step 2": 1, "step 3": 1}


def test_an_asynchronous_generator_is_no_step(script, capsys: pytest.CaptureFixture[str]) -> None:
    path = script("async def parts():\n    yield 1\n")
    assert syncs("--step-function", "parts", path) == 2
    error = capsys.readouterr().err
    assert "parts is an asynchronous generator" in error
    assert "name a function" in error


STEPS = """
from detector_stub import wait

class Trainer:
    @{how}
    def step(*given):
        assert len(given) == {count}
        wait("in step")

class Inherits(Trainer):
    pass
"""
METHODS = pytest.mark.parametrize(("how", "count"), [("staticmethod", 1), ("classmethod", 2)])


@METHODS
def test_a_static_or_class_method_of_the_script_as_step(script, how: str, count: int) -> None:
    path = script(STEPS.format(how=how, count=count) + "for n in range(5): Inherits().step(n)")
    assert findings("--step-function", "Trainer.step", "--warmup", 2, path) == {"in step": 3}


@METHODS
def test_a_static_or_class_method_of_a_module_as_step(
    script, monkeypatch: pytest.MonkeyPatch, how: str, count: int
) -> None:
    monkeypatch.delitem(sys.modules, "stepping_of_test", raising=False)
    script(STEPS.format(how=how, count=count), "stepping_of_test.py")
    path = script("from stepping_of_test import Inherits\nfor n in range(5): Inherits().step(n)")
    for name in ("Trainer", "Inherits"):
        option = f"stepping_of_test:{name}.step"
        assert findings("--step-function", option, "--warmup", 2, path) == {"in step": 3}
    module = sys.modules["stepping_of_test"]
    assert type(vars(module.Trainer)["step"]).__name__ == how  # as it was written
    assert "step" not in vars(module.Inherits)


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
