"""`syncfree syncs` of programs that fork, start processes, or end their own at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncs_command import python
from syncs_command import syncs_alone as syncs

FORKS = """
import os, sys
from detector_stub import wait

def show_and_raise():
    raise KeyError("of a child")

def begin_another():
    os.execv(sys.executable, [sys.executable, "-c", "raise SystemExit(6)"])

ENDS = [
    lambda: sys.exit(0),
    lambda: sys.exit(3),
    lambda: sys.exit("a message of a child"),
    lambda: os._exit(5),
    lambda: None,
    show_and_raise,
    begin_another,
]
wait("Tensor.parent")
for number, end in enumerate(ENDS):
    pid = os.fork()
    if pid == 0:
        wait("Tensor.child")
        kept = open(f"{number}.txt", "w")  # closed by the end of the interpreter
        kept.write("kept")
        end()
        break
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


def test_a_forked_child_ends_as_it_would_alone(tmp_path: Path) -> None:
    done, found = syncs(tmp_path, FORKS)
    kept = [file.read_text() for file in sorted(tmp_path.glob("*.txt"))]
    alone = python(tmp_path, "it.py")
    statuses = "0\n3\n1\n5\n0\n1\n6\n"
    assert alone.stdout == statuses, alone.stderr
    assert done.stdout.startswith(f"{statuses}the host waits 1 time at 1 line"), done.stderr
    assert kept == [file.read_text() for file in sorted(tmp_path.glob("*.txt"))]
    assert done.stdout.count("the host waits") == 1
    assert done.stderr.startswith(alone.stderr)  # the message and the traceback
    assert [each["api"] for each in found["findings"]] == ["Tensor.parent"]
    assert found["note"].startswith("tier 0: torch sees no GPU here, so times are not known; ")
    assert found["note"].endswith("; 7 processes that the program started were not looked at")
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("os._exit(0)", 1),
        ("os._exit(5)", 5),
        ("in_a_thread(os._exit, 0)", 1),
        ("os.execlp('echo', 'echo', 'the next program')", 0),
    ],
)
def test_the_report_comes_before_the_end(tmp_path: Path, end: str, status: int) -> None:
    done, found = syncs(
        tmp_path,
        f"""
        import os, threading
        from detector_stub import wait

        def in_a_thread(run, *given):
            thread = threading.Thread(target=run, args=given)
            thread.start()
            thread.join()

        wait()
        {end}
        wait("Tensor.never")
        """,
    )
    assert done.returncode == status, done.stderr
    assert done.stdout.count("the host waits 1 time at 1 line") == 1
    assert done.stdout.endswith("the next program\n") == ("exec" in end)
    assert [each["api"] for each in found["findings"]] == ["Tensor.item"]
    assert found["failed"] == (status == 5)


@pytest.mark.parametrize(
    ("after", "text"),
    [
        ("def holds_the_globals(): pass", "kept"),
        ("import atexit; atexit.register(lambda: kept.write(' to the end'))", "kept to the end"),
    ],
)
def test_what_a_program_wrote_is_in_its_file(tmp_path: Path, after: str, text: str) -> None:
    syncs(tmp_path, f"kept = open('kept.txt', 'w')\nkept.write('kept')\n{after}")
    assert (tmp_path / "kept.txt").read_text() == text


def test_a_clean_program_that_ends_at_once_is_clean(tmp_path: Path) -> None:
    done, found = syncs(tmp_path, "import os\nos._exit(0)")
    assert done.returncode == 0, done.stderr
    assert found["count"] == 0


def test_processes_that_are_not_looked_at_are_told(tmp_path: Path) -> None:
    _, found = syncs(
        tmp_path,
        """
        import multiprocessing
        import torch
        from torch.utils.data import DataLoader

        def work(number=0):
            pass

        if __name__ == "__main__":
            list(DataLoader(torch.ones(2), num_workers=1))  # loads data: no place for waits
            multiprocessing.get_context("fork").Process(target=work).start()
            torch.multiprocessing.spawn(work, nprocs=2)
        """,
    )
    assert found["note"].endswith("; 3 processes that the program started were not looked at")
