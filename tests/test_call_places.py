"""The line of a metric's call, as errors name it later; in both ways to find it."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

import syncfree
from syncfree import _runtime
from syncfree._call_places import (
    CallPlaces,
    FramePlaces,
    _is_inside,
    call_places,
    is_inside,
    line_of,
)

SHIFT = 20
KEPT = 4096
PACKAGE = Path(syncfree.__file__).parent


@pytest.fixture(params=["frames", "runtime"])
def places(request: pytest.FixtureRequest) -> CallPlaces:
    if request.param == "frames":
        return FramePlaces(SHIFT)
    return _runtime.CallPlaces(_is_inside, is_inside, SHIFT)


def found(places: CallPlaces, bits: int) -> tuple[str, int]:
    place = places.find(bits >> SHIFT)
    assert place is not None
    return place[0].co_filename, line_of(*place)


def caller(file: str) -> Callable[..., int]:
    """A function of its own code, which seems to stand in `file`: note(bits), seven lines down."""
    scope: dict[str, FunctionType] = {}
    exec(
        compile("\n" * 6 + "def call(note, bits, *more): return note(bits, *more)", file, "exec"),
        scope,
    )
    return scope["call"]


def test_this_python_needs_no_frame_objects() -> None:
    assert isinstance(call_places(SHIFT), _runtime.CallPlaces)


def test_the_line_of_a_call(places: CallPlaces) -> None:
    bits = [places.note(0b1011), places.note(0)]
    line = sys._getframe().f_lineno - 1
    assert [each & (1 << SHIFT) - 1 for each in bits] == [0b1011, 0]
    assert [each >> SHIFT for each in bits] == [1, 2]
    assert [found(places, each) for each in bits] == [(__file__, line)] * 2


def test_what_stands_inside_the_packages_is_not_the_place(places: CallPlaces) -> None:
    inner = caller(str(PACKAGE / "functional" / "anything.py"))
    outer = caller(str(PACKAGE / "anything.py"))
    bits = outer(inner, places.note, 0)
    line = sys._getframe().f_lineno - 1
    assert found(places, bits) == (__file__, line)
    user = caller(str(PACKAGE) + "_user.py")  # beside the package
    assert found(places, outer(user, places.note, 0)) == (str(PACKAGE) + "_user.py", 7)


def test_the_outermost_line_stands_in_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncfree._call_places.is_inside", lambda file: True)
    first, second = FramePlaces(SHIFT), _runtime.CallPlaces({}, lambda file: True, SHIFT)
    file, _ = found(first, first.note(0))
    assert file != __file__
    assert found(second, second.note(0))[0] == file


def test_each_file_is_judged_once() -> None:
    judged: list[str] = []
    places = _runtime.CallPlaces({}, lambda file: bool(judged.append(file)), SHIFT)
    for _ in range(3):
        places.note(0)
    assert judged == [__file__]


def test_a_cache_that_another_thread_clears(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cleared(dict):
        def __setitem__(self, key: str, value: bool) -> None:
            pass

    monkeypatch.setattr("syncfree._call_places._is_inside", Cleared())
    assert is_inside(str(PACKAGE / "anything.py"))
    assert not is_inside(__file__)


def test_a_package_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncfree._call_places._is_inside", {})
    monkeypatch.setitem(sys.modules, "torchmetrics", ModuleType("torchmetrics"))
    assert is_inside(str(PACKAGE / "anything.py"))


def test_a_judge_that_fails() -> None:
    def judge(file: str) -> bool:
        raise LookupError(file)

    places = _runtime.CallPlaces({}, judge, SHIFT)
    with pytest.raises(LookupError, match="test_call_places"):
        places.note(0)


@pytest.mark.parametrize("arguments", [(), ([], is_inside, SHIFT), ({}, is_inside, "20")])
def test_wrong_arguments(arguments: tuple) -> None:
    with pytest.raises(TypeError):
        _runtime.CallPlaces(*arguments)
    with pytest.raises(TypeError):
        _runtime.CallPlaces({}, is_inside, SHIFT).note("0")  # type: ignore[arg-type]


def test_old_calls_are_forgotten_with_their_code(places: CallPlaces) -> None:
    call = caller("a_cell_of_a_notebook")
    code = weakref.ref(call.__code__)
    first = call(places.note, 0) >> SHIFT
    del call
    assert code() is not None
    assert places.find(first) is not None
    for _ in range(KEPT - 1):
        places.note(0)
    assert places.find(first) is not None
    places.note(0)
    assert places.find(first) is None
    gc.collect()  # the function and its globals hold each other
    assert code() is None


def test_a_code_whose_end_notes_a_call(places: CallPlaces) -> None:
    """A finalizer may run in the middle of a note, whose room is its own all the same."""
    ends: list[int] = []
    call = caller("a_cell_of_a_notebook")
    weakref.finalize(call.__code__, lambda: ends.append(places.note(0)))
    call(places.note, 0)
    del call
    gc.collect()
    bits = [places.note(0) for _ in range(KEPT)]
    gc.collect()
    assert len(ends) == 1
    assert len({*bits, *ends}) == KEPT + 1
    assert [found(places, each)[0] for each in (*bits[1:], *ends)] == [__file__] * KEPT


def test_numbers_that_nobody_has(places: CallPlaces) -> None:
    assert [places.find(number) for number in (0, 1, -1, KEPT, 2**40)] == [None] * 5


def test_threads_get_numbers_of_their_own(places: CallPlaces) -> None:
    with ThreadPoolExecutor(8) as pool:
        bits = list(pool.map(lambda _: places.note(3), range(2000)))
    assert len(set(bits)) == 2000
    assert {found(places, each)[0] for each in bits} == {__file__}


def test_no_audit_event() -> None:
    """Others listen to these with functions in Python, at each call of a metric."""
    program = (
        "import sys, torch, syncfree\n"
        "from syncfree.functional import accuracy\n"
        "labels = torch.tensor([0, 1])\n"
        "events = []\n"
        "accuracy(labels, labels, task='multiclass', num_classes=2)\n"
        "sys.addaudithook(lambda event, arguments: events.append(event))\n"
        "accuracy(labels, labels, task='multiclass', num_classes=2)\n"
        "assert events == [], events\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
