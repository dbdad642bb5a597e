"""Functions called before lines: the right ones, in every thread, and nothing left behind."""

from __future__ import annotations

import sys
import threading

import pytest

from syncfree.detector.line_hooks import BeforeLines, Place
from syncfree.errors import DetectorError

SOURCE = """\
def work(out):
    for i in range(3):
        out.append(i)
    return (
        len(out)
    )

def other(out):
    out.append("other")
"""


@pytest.fixture
def program() -> dict:
    scope: dict = {}
    exec(compile(SOURCE, "hooked.py", "exec"), scope)
    return scope


def test_each_time_before_the_line(program: dict) -> None:
    out: list = []
    seen: list = []
    former = sys.gettrace()
    with BeforeLines([("hooked.py", 3)], lambda place: seen.append((place, list(out)))):
        assert program["work"](out) == 3
        program["other"](out)
    program["work"](out)
    assert seen == [(("hooked.py", 3), list(range(n))) for n in range(3)]
    assert sys.gettrace() is former


def test_in_threads_that_begin_inside(program: dict) -> None:
    seen: list[int] = []

    def call(place: Place) -> None:
        seen.append(threading.get_ident())

    with BeforeLines([("hooked.py", 9), ("elsewhere.py", 3)], call):
        threads = [threading.Thread(target=program["other"], args=([],)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(seen) == 4


def test_what_is_called_is_not_hooked_itself(program: dict) -> None:
    seen: list[Place] = []

    def call(place: Place) -> None:
        seen.append(place)
        program["other"]([])

    with BeforeLines([("hooked.py", 9)], call):
        program["other"]([])
    assert seen == [("hooked.py", 9)]


def test_an_error_of_the_program_passes_through(program: dict) -> None:
    with (
        pytest.raises(AttributeError),
        BeforeLines([("hooked.py", 9)], lambda place: None),
    ):
        program["other"](None)
    with BeforeLines([("hooked.py", 9)], lambda place: None):  # nothing is held on to
        program["other"]([])


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is of Python 3.12")
def test_other_tools_of_sys_monitoring_are_respected(program: dict) -> None:
    if sys.version_info >= (3, 12):
        taken = [n for n in (2, 3, 4, 5) if sys.monitoring.get_tool(n) is None]
        for number in taken:
            sys.monitoring.use_tool_id(number, f"tool {number}")
        try:
            with pytest.raises(DetectorError, match="taken by other tools"):
                BeforeLines([("hooked.py", 9)], lambda place: None).__enter__()
        finally:
            for number in taken:
                sys.monitoring.free_tool_id(number)
