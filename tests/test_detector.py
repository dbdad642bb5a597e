"""Regions: what they count, where they reach, and that they leave nothing behind."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import detector_stub
import syncfree
from detector_stub import is_active, wait
from syncfree.detector import Verdict
from syncfree.errors import DetectorError, SyncError, SyncWarning

HERE = __file__


@pytest.fixture(autouse=True)
def _stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    detector_stub.install(monkeypatch)
    start = threading.Thread.start
    yield
    assert not is_active(), "a region was left open"
    assert threading.Thread.start is start, "a patch was left behind"


def line_of(text: str) -> int:
    lines = Path(HERE).read_text(encoding="utf-8").splitlines()
    return next(n for n, line in enumerate(lines, 1) if text in line)


def wait_times(times: int) -> None:
    for _ in range(times):
        wait()


# What a region counts


def test_a_wait_is_found_with_its_line() -> None:
    with syncfree.detect_syncs() as report:
        for _ in range(3):
            wait()  # found here
    (found,) = report.findings
    assert (found.file, found.line) == (HERE, line_of("# found here"))
    assert found.function.endswith("test_a_wait_is_found_with_its_line")
    assert found.source == "wait()  # found here"
    assert (found.count, report.count, report.tier) == (3, 3, 0)
    assert report.seconds > 0


def test_the_outermost_pytest_frames_are_left_out() -> None:
    with syncfree.detect_syncs() as report:
        wait()
    assert {frame.file for frame in report.findings[0].event.stack} == {HERE}


def test_nothing_counts_outside() -> None:
    wait()
    with syncfree.detect_syncs() as report:
        pass
    wait()
    assert report.findings == []


def test_conditional_waits_are_shown_and_not_counted() -> None:
    with syncfree.detect_syncs("raise") as report:
        wait("cuMemFree", verdict=Verdict.CONDITIONAL)
    assert (len(report.findings), report.count) == (1, 0)


def test_an_inner_region_counts_to_the_outer_one() -> None:
    with syncfree.detect_syncs() as outer:
        wait()
        with syncfree.detect_syncs() as inner:
            wait()
        wait()
    assert (inner.count, outer.count) == (1, 3)


def test_a_region_can_be_entered_again() -> None:
    region = syncfree.detect_syncs()
    with region as first:
        wait()
        with pytest.raises(DetectorError, match="open already"):
            region.__enter__()
    with region as second:
        pass
    assert (first.count, second.count) == (1, 0)


# Modes


def test_raise_at_the_end() -> None:
    went_on = []

    def body() -> None:
        wait()  # the guilty one
        went_on.append(True)

    expected = pytest.raises(SyncError, match=r"at most 0 allowed.*1 time at 1 line")
    with expected as caught, syncfree.detect_syncs("raise"):
        body()
    assert went_on
    assert f"{HERE}:{line_of('# the guilty one')}" in str(caught.value)
    assert caught.value.report.count == 1


def test_max_syncs_are_accepted() -> None:
    with syncfree.detect_syncs("raise", max_syncs=2):
        wait()
        wait()
    with pytest.raises(SyncError), syncfree.detect_syncs("raise", max_syncs=2):
        wait_times(3)


def test_warn_points_at_the_guilty_line() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with syncfree.detect_syncs("warn"):
            wait()  # warned of
    (warning,) = caught
    assert warning.category is SyncWarning
    assert (warning.filename, warning.lineno) == (HERE, line_of("# warned of"))


def test_raise_at_the_call_without_a_gpu() -> None:
    reached = []

    def body() -> None:
        for n in range(3):
            wait()
            reached.append(n)

    with pytest.raises(SyncError), syncfree.detect_syncs("raise", raise_at="call", max_syncs=1):
        body()
    assert reached == [0]


def test_raise_at_the_call_that_the_program_swallows() -> None:
    def body() -> None:
        with pytest.raises(SyncError):
            wait()

    with pytest.raises(SyncError), syncfree.detect_syncs("raise", raise_at="call"):
        body()


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_exceptions_pass_through(kind: type[BaseException]) -> None:
    error = kind("its own")

    def body() -> None:
        wait()
        raise error

    with pytest.raises(kind) as caught, syncfree.detect_syncs("raise"):
        body()
    assert caught.value is error
    assert error.__context__ is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "log"}, "mode is one of 'record', 'warn', 'raise', but got 'log'"),
        ({"max_syncs": -1}, "max_syncs is a count of at least 0, but got -1"),
        ({"max_syncs": True}, "max_syncs is a count"),
        ({"tier": 1}, "tier is one of 'auto', 0, 2, 3, but got 1"),
        ({"tier": False}, "tier is one of"),
        ({"raise_at": "once"}, "raise_at is one of"),
        ({"raise_at": "call"}, "raise_at='call' needs mode='raise'"),
        ({"raise_at": "call", "mode": "raise", "tier": 3}, "needs tier 2 or 0"),
        ({"threads": "some"}, "threads is one of"),
    ],
)
def test_wrong_arguments(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        syncfree.detect_syncs(**arguments)


def test_another_tier_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    with syncfree.detect_syncs(tier=0):
        with syncfree.detect_syncs(tier="auto"):
            pass
        with pytest.raises(DetectorError, match="tier 2 was asked for inside of a region"):
            syncfree.detect_syncs(tier=2).__enter__()


# Tier 2's way to raise


def test_a_refused_wait_becomes_a_sync_error(monkeypatch: pytest.MonkeyPatch) -> None:
    detector_stub.install(monkeypatch, 2)
    with pytest.raises(SyncError) as caught, syncfree.detect_syncs("raise", raise_at="call"):
        wait()
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert caught.value.report.count == 1


def test_nothing_is_refused_where_it_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    detector_stub.install(monkeypatch, 2)
    with syncfree.detect_syncs("raise", raise_at="call") as report:
        with syncfree.allow_sync("meant"):
            wait()
        with pytest.raises(RuntimeError, match="would wait"):
            wait()
        with syncfree.detect_syncs("raise", raise_at="call"), syncfree.allow_sync("both"):
            wait()
    assert report.allowed == {"meant": 1, "both": 1}


def test_with_a_gpu_a_call_raises_at_the_first_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    detector_stub.install(monkeypatch, 2)
    with pytest.raises(ValueError, match="max_syncs must be 0, but it is 1"):
        syncfree.detect_syncs("raise", raise_at="call", max_syncs=1).__enter__()


def test_a_tier_that_cannot_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    detector_stub.install(monkeypatch, 3)
    inner = syncfree.detect_syncs("raise", raise_at="call")
    with syncfree.detect_syncs(), pytest.raises(DetectorError, match="the outer region tier=2"):
        inner.__enter__()


# Threads and tasks


def in_thread(function, *, times: int = 1) -> None:
    threads = [threading.Thread(target=function) for _ in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_started_inside_count() -> None:
    with syncfree.detect_syncs() as report:
        in_thread(lambda: in_thread(wait, times=2), times=2)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda _: wait(), range(6)))
    assert report.count == 10


def test_threads_that_run_already_do_not_count() -> None:
    go, done = threading.Event(), threading.Event()

    def body() -> None:
        go.wait(10)
        wait()
        done.set()

    thread = threading.Thread(target=body)
    thread.start()
    with syncfree.detect_syncs() as report, syncfree.detect_syncs(threads="all") as everything:
        go.set()
        done.wait(10)
    thread.join()
    assert (report.count, everything.count) == (0, 1)


def test_two_threads_with_regions_of_their_own() -> None:
    both_open = threading.Barrier(2)
    counts = {}

    def body(name: str, waits: int) -> None:
        with syncfree.detect_syncs() as report:
            both_open.wait(10)
            for _ in range(waits):
                wait()
            both_open.wait(10)
        counts[name] = report.count

    threads = [threading.Thread(target=body, args=(name, n)) for name, n in (("a", 2), ("b", 5))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == {"a": 2, "b": 5}


def test_the_thread_that_opened_first_may_close_first() -> None:
    turn = threading.Barrier(2, timeout=10)
    counts = {}

    def first() -> None:
        with syncfree.detect_syncs() as report:
            turn.wait()  # open in both
            turn.wait()
            wait()
        counts["first"] = report.count
        turn.wait()  # closed here

    def second() -> None:
        with syncfree.detect_syncs() as report:
            turn.wait()
            turn.wait()
            turn.wait()
            wait()
            with syncfree.detect_syncs():
                wait()
        counts["second"] = report.count

    threads = [threading.Thread(target=each) for each in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == {"first": 1, "second": 2}


def test_many_threads_lose_no_event() -> None:
    with syncfree.detect_syncs() as report:
        in_thread(lambda: [wait() for _ in range(500)], times=16)
    assert report.count == 16 * 500
    assert len(report.findings) == 1


def test_tasks_count_where_they_were_made() -> None:
    async def waits(after: float) -> None:
        await asyncio.sleep(after)
        wait()

    async def main() -> tuple[int, int]:
        before = asyncio.create_task(waits(0.02))
        await asyncio.sleep(0)
        with syncfree.detect_syncs() as report:
            await asyncio.gather(waits(0.01), waits(0.01), asyncio.to_thread(wait))
            await before
        return report.count

    assert asyncio.run(main()) == 3


def test_a_region_left_in_another_context() -> None:
    """As fixtures of asynchronous tests do."""
    region = syncfree.detect_syncs()
    report = contextvars.copy_context().run(region.__enter__)
    contextvars.copy_context().run(region.__exit__, None, None, None)
    assert report.count == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_records_nothing() -> None:
    with syncfree.detect_syncs() as report:
        child = os.fork()
        if child == 0:
            wait()
            os._exit(report.count)
        assert os.waitpid(child, 0)[1] == 0
        wait()
    assert report.count == 1


# The decorator


def test_plain_functions() -> None:
    @syncfree.no_sync
    def good(a: int, *, b: int) -> int:
        """Adds."""
        return a + b

    @syncfree.no_sync(max_syncs=1)
    def bad(times: int) -> str:
        for _ in range(times):
            wait()
        return "done"

    assert good(1, b=2) == 3
    assert (good.__name__, good.__doc__) == ("good", "Adds.")
    assert bad(1) == "done"
    with pytest.raises(SyncError):
        bad(2)
    assert bad(1) == "done"


def test_coroutine_functions() -> None:
    @syncfree.no_sync
    async def step(times: int) -> int:
        await asyncio.sleep(0)
        for _ in range(times):
            wait()
        return times

    async def main() -> list:
        return await asyncio.gather(step(0), step(1), step(0), return_exceptions=True)

    first, second, third = asyncio.run(main())
    assert (first, third) == (0, 0)
    assert isinstance(second, SyncError)
    assert second.report.count == 1


def test_generators() -> None:
    closed = []

    @syncfree.no_sync
    def batches(guilty: int):
        try:
            for n in range(3):
                if n == guilty:
                    wait()
                got = yield n
                if got == "throw":
                    pytest.fail("an exception was expected")
            if guilty == 3:
                wait()
            return "end"
        except ValueError:
            yield "caught"
        finally:
            closed.append(guilty)

    def everything(guilty: int):
        result = yield from batches(guilty)
        assert result == "end"

    for _ in everything(-1):
        wait()  # the caller's
    seen: list[int] = []
    with pytest.raises(SyncError):
        seen.extend(batches(1))
    with pytest.raises(SyncError):  # after the last one
        seen.extend(batches(3))
    assert seen == [0, 0, 1, 2]
    generator = batches(-1)
    assert next(generator) == 0
    assert generator.send("x") == 1
    assert generator.throw(ValueError) == "caught"
    generator.close()
    for _ in batches(5):
        break
    assert closed == [-1, 1, 3, -1, 5]


def test_asynchronous_generators() -> None:
    @syncfree.no_sync
    async def batches(guilty: int):
        for n in range(3):
            await asyncio.sleep(0)
            if n == guilty:
                wait()
            got = yield n
            assert got in (None, "sent")

    async def main() -> None:
        async for _ in batches(-1):
            wait()  # the caller's
        with pytest.raises(SyncError):
            async for _ in batches(1):
                pass
        generator = batches(-1)
        assert await anext(generator) == 0
        assert await generator.asend("sent") == 1
        await generator.aclose()

    asyncio.run(main())


def test_methods_and_static_methods() -> None:
    class Model:
        @syncfree.no_sync
        def step(self) -> Model:
            return self

        @staticmethod
        @syncfree.no_sync
        def other() -> None:
            wait()

    model = Model()
    assert model.step() is model
    with pytest.raises(SyncError):
        model.other()


@pytest.mark.parametrize("thing", [int, 3, "step"])
def test_what_is_no_function(thing: object) -> None:
    with pytest.raises(TypeError, match="no_sync decorates functions"):
        syncfree.no_sync(thing)


def test_wrong_options_raise_at_the_decorator() -> None:
    with pytest.raises(ValueError, match="max_syncs"):
        syncfree.no_sync(max_syncs=-1)
    with pytest.raises(TypeError, match="mode"):
        syncfree.no_sync(mode="record")
