"""Regions and threads, tasks, forks: whose waits count where."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import detector_stub
import syncfree
from detector_stub import wait

pytestmark = pytest.mark.usefixtures("stub")


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


def test_a_thread_of_a_region_that_has_ended_suspends_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    detector_stub.install(monkeypatch, 2)
    go, allowing, tried = (threading.Event() for _ in range(3))

    def body() -> None:
        go.wait(10)
        with syncfree.allow_sync("of the first region"):
            allowing.set()
            tried.wait(10)

    thread = threading.Thread(target=body)
    with syncfree.detect_syncs("raise", raise_at="call"):
        thread.start()
    with syncfree.detect_syncs("raise", raise_at="call"):
        go.set()
        allowing.wait(10)
        with pytest.raises(RuntimeError, match="would wait"):
            wait()
        tried.set()
        thread.join()


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
