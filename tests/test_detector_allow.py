"""Waits that are meant: blocks, pragmas and patterns."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import detector_stub
import syncfree
from detector_stub import wait
from syncfree.detector import Event, Verdict
from syncfree.detector.allow import pragma


@pytest.fixture(autouse=True)
def _stub(monkeypatch: pytest.MonkeyPatch) -> None:
    detector_stub.install(monkeypatch)


def test_a_block() -> None:
    with syncfree.detect_syncs("raise", max_syncs=1) as report:
        with syncfree.allow_sync("once an epoch"):
            wait()
            with syncfree.allow_sync("inner"):
                wait()
            wait()
        wait()
    assert report.allowed == {"once an epoch": 2, "inner": 1}
    assert report.count == 1
    assert "2 allowed (once an epoch)" in str(report)


def test_what_would_not_count_is_not_counted_as_allowed() -> None:
    with syncfree.detect_syncs(allow=["*alloc*"]) as report:
        with syncfree.allow_sync("meant"):
            wait("cuMemAlloc", verdict=Verdict.CONDITIONAL)
            wait("cuEventQuery", verdict=Verdict.POLL)
        wait("aten::alloc", verdict=Verdict.CONDITIONAL)
        wait("cuMemAlloc", verdict=Verdict.CONDITIONAL)  # sync-ok: on the line
    assert report.allowed == {"meant": 1}
    assert report.findings == []


def test_a_block_around_a_region_and_an_error_inside() -> None:
    with syncfree.allow_sync("outside"), syncfree.detect_syncs() as report:
        wait()
        with pytest.raises(KeyError), syncfree.allow_sync("x"):
            raise KeyError
        wait()
    assert report.allowed == {"outside": 2}


def test_a_block_reaches_threads_and_tasks_started_inside() -> None:
    async def main() -> None:
        with syncfree.allow_sync("task"):
            await asyncio.create_task(waits())

    async def waits() -> None:
        await asyncio.sleep(0)
        wait()

    with syncfree.detect_syncs() as report:
        with syncfree.allow_sync("thread"):
            thread = threading.Thread(target=wait)
            thread.start()
            thread.join()
        asyncio.run(main())
        wait()
    assert report.allowed == {"thread": 1, "task": 1}
    assert report.count == 1


def test_the_decorator() -> None:
    @syncfree.allow_sync("meant")
    def plain() -> int:
        wait()
        return 1

    @syncfree.allow_sync("meant too")
    async def coroutine() -> int:
        await asyncio.sleep(0)
        wait()
        return 2

    with syncfree.detect_syncs() as report:
        assert plain() + plain() == 2
        assert asyncio.run(coroutine()) == 2
    assert report.allowed == {"meant": 2, "meant too": 1}
    assert report.count == 0


class Awaited:
    async def __call__(self) -> int:
        await asyncio.sleep(0)
        wait()
        return 3


def test_the_decorator_on_methods_and_objects() -> None:
    class Model:
        @syncfree.allow_sync("static")
        @staticmethod
        def static(x: int) -> int:
            wait()
            return x

        @syncfree.allow_sync("of the class")
        @classmethod
        def of_the_class(cls) -> str:
            wait()
            return cls.__name__

    with syncfree.detect_syncs() as report:
        assert (Model.static(1), Model().static(2)) == (1, 2)
        assert (Model.of_the_class(), Model().of_the_class()) == ("Model", "Model")
        assert asyncio.run(syncfree.allow_sync("awaited")(Awaited())()) == 3
    assert report.allowed == {"static": 2, "of the class": 2, "awaited": 1}
    assert report.count == 0


@pytest.mark.parametrize("reason", ["", "  "])
def test_the_reason_is_required(reason: str) -> None:
    with pytest.raises(ValueError, match="needs a reason"):
        syncfree.allow_sync(reason)


def test_without_parentheses() -> None:
    with pytest.raises(TypeError, match="needs the reason as text"):

        @syncfree.allow_sync
        def function() -> None: ...


def test_generators_are_not_decorated() -> None:
    def generator():
        yield 1

    async def asynchronous():
        yield 1

    class Called:
        def __call__(self):
            yield 1

    for each in (generator, asynchronous, Called()):
        with pytest.raises(TypeError, match="cannot decorate a generator"):
            syncfree.allow_sync("x")(each)


# Pragmas


def reads() -> None:
    wait()


def test_pragmas() -> None:
    with syncfree.detect_syncs() as report:
        wait()  # sync-ok: on the line
        # sync-ok: above the line
        wait()
        reads()  # sync-ok: on a line of the stack
        wait()  # sync-ok
        wait()  # sync-ok:
        _ = 1  # sync-ok: of another statement
        wait()
    assert list(report.allowed) == ["on the line", "above the line", "on a line of the stack"]
    assert [finding.source for finding in report.findings] == [
        "wait()  # sync-ok",
        "wait()  # sync-ok:",
        "wait()",
    ]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("x.item()  # sync-ok: reason\n", 1, "reason"),
        ("x.item()  #sync-ok: a b  \n", 1, "a b"),
        ("x.item()  # noqa  # sync-ok: both\n", 1, "both"),
        ("    # sync-ok: above\n    x.item()\n", 2, "above"),
        ("# sync-ok: above\n# and more\nx.item()\n", 3, "above"),
        ("y = 1  # sync-ok: no\n# more\nx.item()\n", 3, None),
        ("# sync-ok: too far\n\nx.item()\n", 3, None),
        ("x.item()  # sync-okay: no\n", 1, None),
        ("x.item()\n", 1, None),
        ("", 7, None),
    ],
)
def test_reading_pragmas(text: str, line: int, reason: str | None, tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text(text)
    assert pragma(str(file), line) == reason


# Patterns


def helper() -> None:
    wait("aten::nonzero")


@pytest.mark.parametrize(
    "pattern",
    [
        "aten::nonzero",
        "aten::*",
        "helper",
        "test_patterns_that_match",
        "test_detector_allow.py",
        "tests/test_detector_allow.py",
        "*/test_detector_allow.py",
        "test_detector_allow.py:*",
        lambda event: event.api.endswith("nonzero"),
    ],
)
def test_patterns_that_match(pattern: object) -> None:
    with syncfree.detect_syncs("raise", allow=["Tensor.other", pattern]) as report:
        helper()
    assert sum(report.allowed.values()) == 1
    (reason,) = report.allowed
    assert reason.startswith("allow=")


@pytest.mark.parametrize("pattern", ["nonzero", "help", "allow.py", "other.py", "Tensor.item"])
def test_patterns_that_do_not_match(pattern: str) -> None:
    with syncfree.detect_syncs(allow=[pattern]) as report:
        helper()
    assert report.count == 1


def test_an_inner_list_does_not_hold_outside() -> None:
    with syncfree.detect_syncs() as outer, syncfree.detect_syncs(allow=["aten::*"]) as inner:
        helper()
    assert (outer.count, inner.count) == (1, 0)


@pytest.mark.parametrize(("allow", "message"), [("helper", r"allow=\['helper'\]"), ([3], "int: 3")])
def test_what_is_no_list_of_patterns(allow: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        syncfree.detect_syncs(allow=allow)


def test_a_pattern_gets_the_whole_event() -> None:
    seen: list[Event] = []
    with syncfree.detect_syncs(allow=[lambda event: bool(seen.append(event))]):
        wait(bytes=8, direction="d2h")
    assert (seen[0].bytes, seen[0].direction, seen[0].verdict) == (8, "d2h", Verdict.SYNC)
