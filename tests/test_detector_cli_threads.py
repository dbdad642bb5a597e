"""`syncfree syncs` of programs that leave threads running: those are a part of the program."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import detector_stub
from syncs_command import findings, python, syncs, syncs_alone

pytestmark = pytest.mark.usefixtures("stub_in_a_folder")

LEFT = """
import sys, threading, time

def train():
    time.sleep(0.3)
    from detector_stub import wait  # the program may have lost its globals by then
    wait("Tensor.late")

threading.Thread(target=train).start()
"""


@pytest.mark.parametrize(("end", "status"), [("", 1), ("sys.exit(0)", 1), ("sys.exit(3)", 2)])
def test_the_threads_of_a_program_are_judged(script, end: str, status: int) -> None:
    path = script(LEFT + end)
    assert findings(path) == {"Tensor.late": 1}
    assert syncs(path) == status


def test_an_error_is_shown_before_the_threads_have_ended(tmp_path: Path) -> None:
    """As by the interpreter, here of a program whose thread prints last."""
    late = 'wait("Tensor.late")'
    text = LEFT.replace(late, f'{late}; print("last", file=sys.stderr)') + "raise KeyError(0)"
    done, found = syncs_alone(tmp_path, text)
    alone = python(tmp_path, "it.py")
    assert alone.stderr.endswith("KeyError: 0\nlast\n")
    assert done.stderr.startswith(alone.stderr)
    assert (done.returncode, found["count"], found["failed"]) == (2, 1, True)


def test_daemons_end_with_the_program(script) -> None:
    assert findings(script(LEFT.replace("target=train", "target=train, daemon=True"))) == {}


def test_threads_that_threads_start_are_judged(script) -> None:
    path = script(
        LEFT.replace("target=train", "target=lambda: threading.Thread(target=train).start()")
    )
    assert findings(path) == {"Tensor.late": 1}


@pytest.mark.parametrize(
    "until", ["main.join()", "while main.is_alive(): time.sleep(0.01)"], ids=["join", "is_alive"]
)
def test_a_thread_that_waits_for_the_main_one_goes_on_after_it(script, until: str) -> None:
    path = script(
        f"""
        import threading, time
        from detector_stub import wait

        main = threading.main_thread()

        def watch():
            {until}
            wait("Tensor.late")

        threading.Thread(target=watch).start()
        time.sleep(0.05)
        wait("Tensor.early")
        """
    )
    assert findings(path) == {"Tensor.early": 1, "Tensor.late": 1}
    main = threading.main_thread()
    assert main.is_alive()
    assert "join" not in vars(main)


POOL = """
import time
from concurrent.futures import {0}
from detector_stub import wait

def work():
    time.sleep(0.3)
    wait("Tensor.late")

if __name__ == "__main__":
    pool = {0}(1)  # which nobody shuts down
    for _ in range(2):
        pool.submit(work)
"""


def test_a_pool_ends_when_its_work_is_done(script) -> None:
    path = script(POOL.format("ThreadPoolExecutor"))
    assert findings(path) == {"Tensor.late": 2}
    assert findings(path) == {"Tensor.late": 2}  # also in a process that goes on


def test_a_pool_of_processes_ends_too(tmp_path: Path) -> None:
    done, found = syncs_alone(tmp_path, POOL.format("ProcessPoolExecutor"))
    assert done.returncode == 0, done.stderr
    assert "1 process that the program started was not looked at" in found["note"]


def test_the_steps_of_a_thread_end_the_run(
    script, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    monkeypatch.setattr(detector_stub, "ended", ended, raising=False)
    path = script(
        """
        import threading
        from detector_stub import ended, wait

        def step():
            wait()

        def train():
            while True:
                step()

        threading.Thread(target=ended.wait, args=[10], name="other").start()
        threading.Thread(target=train).start()
        """
    )
    assert findings("--step-function", "step", "--steps", 3, path) == {"Tensor.item": 3}
    shown = capsys.readouterr()
    assert "3 iterations judged, 1 before them left out" in shown.err
    assert "EndOfRunError" not in shown.err
    (other,) = [each for each in threading.enumerate() if each.name == "other"]  # not waited for
    ended.set()
    other.join()


def test_time_ends_a_run_whose_threads_go_on(script, capsys: pytest.CaptureFixture[str]) -> None:
    path = script(LEFT.replace("0.3", "3"))
    assert findings("--seconds", 0.2, path) == {}
    assert "stopped after 0.2 s: the report is of the run so far" in capsys.readouterr().err
