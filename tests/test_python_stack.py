"""Frames read without the GIL: the right lines, from any kind of caller, while others run."""

from __future__ import annotations

import asyncio
import gc
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import syncfree
from syncfree import _runtime

Frame = tuple[str, int, str]


def expected(skip: int = 1) -> list[Frame]:
    """What Python itself says of the callers, from `skip` frames up."""
    frames = []
    frame: Any = sys._getframe(skip)
    while frame is not None:
        code = frame.f_code
        frames.append(
            (code.co_filename, frame.f_lineno, getattr(code, "co_qualname", code.co_name))
        )
        frame = frame.f_back
    return frames


def both() -> tuple[list[Frame], list[Frame]]:
    return _runtime.python_stack(1000), expected()


def test_stub_names_everything() -> None:
    stub = Path(_runtime.__file__).with_name("_runtime.pyi")
    if not stub.exists():  # an editable install keeps the library apart from the sources
        stub = Path(syncfree.__file__).with_name("_runtime.pyi")
    named = set(re.findall(r"^(?:def|class) (\w+)", stub.read_text(), flags=re.MULTILINE))
    assert named == {name for name in vars(_runtime) if not name.startswith("_")}


def test_known_version() -> None:
    assert _runtime.can_walk_python_stack() == (sys.version_info < (3, 14))


def test_plain_calls() -> None:
    def outer(depth: int) -> tuple[list[Frame], list[Frame]]:
        if depth:
            return outer(depth - 1)
        return (
            both()
        )  # fmt: skip

    got, want = outer(23)
    assert got == want
    assert len(got) > 24


def test_the_innermost_are_kept() -> None:
    assert _runtime.python_stack(1) == [(__file__, sys._getframe().f_lineno, name_here())]
    assert _runtime.python_stack(0) == []


def name_here() -> str:
    code = sys._getframe(1).f_code
    return getattr(code, "co_qualname", code.co_name)


class Implicit:
    """Waits hide in what Python calls by itself."""

    def __init__(self) -> None:
        self.seen: list[tuple[list[Frame], list[Frame]]] = []

    def __bool__(self) -> bool:
        self.seen.append(both())
        return True

    def __getitem__(self, key: object) -> object:
        self.seen.append(both())
        return key

    def __format__(self, spec: str) -> str:
        self.seen.append(both())
        return spec

    @property
    def value(self) -> int:
        self.seen.append(both())
        return 1


def test_implicit_calls() -> None:
    one = Implicit()
    if one:
        _ = one[3]
    _ = (
        f"{one:x}"
        f"{one.value}"
    )  # fmt: skip
    _ = sorted([2, 1], key=lambda _: one.value)
    assert len(one.seen) == 6
    for got, want in one.seen:
        assert got == want


def test_generators_and_coroutines() -> None:
    def generate() -> Any:
        yield both()
        yield from (both() for _ in range(2))

    async def inner() -> tuple[list[Frame], list[Frame]]:
        await asyncio.sleep(0)
        return both()

    async def outer() -> list[tuple[list[Frame], list[Frame]]]:
        return [await inner(), *await asyncio.gather(inner(), inner())]

    for got, want in [*generate(), *asyncio.run(outer())]:
        assert got == want


def test_made_code() -> None:
    source = "\n" * 700 + "def f(g):\n    x = (1,\n         2)\n    return g()\n"
    scope: dict[str, Any] = {}
    for name in ("générique.py", "файл.py", "\U0001f600.py", "a" * 1000 + ".py"):
        exec(compile(source, name, "exec"), scope)
        got, want = scope["f"](both)
        assert got[1][0] == name[-240:].encode()[-240:].decode(errors="ignore")
        assert got[1][1:] == want[1][1:]
        assert got[1][1] == 704
    exec(compile("got = both()[0]", "<string>", "exec"), {"both": both}, scope)
    assert scope["got"][1][0] == "<string>"


def test_many_lines() -> None:
    """Steps of lines both ways and of every size."""
    for gap in (1, 5, 31, 32, 63, 64, 1000, 5000):
        source = (
            "def f(g):\n" + "\n" * gap + "    r = [g(),\n" + "\n" * gap + "    g()]\n    return r"
        )
        scope: dict[str, Any] = {}
        exec(compile(source, "f.py", "exec"), scope)
        for got, want in scope["f"](both):
            assert got == want


def test_thread_that_python_does_not_know() -> None:
    assert _runtime.python_stack(64, in_thread_of_its_own=True) == []


def test_threads_of_python() -> None:
    results = []
    threads = [threading.Thread(target=lambda: results.append(both())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    for got, want in results:
        assert got == want


def _compile_and_drop() -> None:
    scope: dict[str, Any] = {}
    exec(compile("def f():\n    return [x for x in range(9)]\nf()", "x.py", "exec"), scope)
    gc.collect(0)


def _trace_and_stop() -> None:
    sys.settrace(lambda *_: None)
    sys.setprofile(lambda *_: None)
    sys.settrace(None)
    sys.setprofile(None)


def _trace_all() -> None:
    """Instruments code that other threads are running, as a debugger or coverage tool does."""
    if sys.version_info >= (3, 12):
        monitoring = sys.monitoring
        monitoring.use_tool_id(4, "test")
        monitoring.set_events(4, monitoring.events.LINE | monitoring.events.INSTRUCTION)
        monitoring.set_events(4, 0)
        monitoring.free_tool_id(4)


@pytest.mark.parametrize("noise", [_compile_and_drop, _trace_and_stop, _trace_all])
def test_while_other_threads_run(noise: Callable[[], None]) -> None:
    stop, failures = threading.Event(), []

    def walk() -> None:
        while not stop.is_set():
            got, want = both()
            if got != want:
                failures.append((got, want))

    def disturb() -> None:
        while not stop.is_set():
            noise()

    threads = [threading.Thread(target=walk) for _ in range(6)]
    # One tool at a time may be registered.
    threads += [threading.Thread(target=disturb) for _ in range(1 if noise is _trace_all else 3)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
