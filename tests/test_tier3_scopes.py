"""Tier 3 without a GPU: whose code a call belongs to, and how many calls there may be."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import syncfree
from fake_cupti import MIB, PINNED, FakeCupti, found, installed
from syncfree.errors import SyncError


@pytest.fixture
def fake(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeCupti]:
    yield from installed(monkeypatch, tmp_path_factory)


def test_own_calls_are_left_out(fake: FakeCupti) -> None:
    wait = fake.call("cuStreamSynchronize")
    with syncfree.detect_syncs() as report:
        with syncfree._runtime.OwnCalls():
            wait()
        assert (
            syncfree.detector.session.session.tier._watch.memory_kind(PINNED, 1, True) == "pinned"
        )
        wait()  # the program's
    assert found(report) == {"the program's": ("sync", 1)}


def test_threads_belong_to_who_started_them(fake: FakeCupti) -> None:
    wait = fake.call("cuStreamSynchronize")
    go, outside_done = threading.Event(), threading.Event()

    def outsider() -> None:
        go.wait()
        wait()  # outside
        outside_done.set()

    def insider() -> None:
        wait()  # inside

    other = threading.Thread(target=outsider)
    other.start()
    with syncfree.detect_syncs() as report, syncfree.detect_syncs(threads="all") as wide:
        go.set()
        outside_done.wait()
        for _ in range(3):
            thread = threading.Thread(target=insider)
            thread.start()
            thread.join()
            del thread
    other.join()
    assert found(report) == {"inside": ("sync", 3)}
    assert found(wide) == {"inside": ("sync", 3), "outside": ("sync", 1)}


@pytest.mark.parametrize("name", ["pt_nccl_watchdg", "pt_data_pin"])
def test_threads_whose_work_is_to_wait_are_left_out(fake: FakeCupti, name: str) -> None:
    with syncfree.detect_syncs(threads="all") as report:
        fake.many("cuStreamSynchronize", 10, threads=2, name=name)
        fake.many("cuStreamSynchronize", 10, threads=1, name="mine")
    (one,) = report.findings
    assert (one.count, one.function) == (10, "mine")


def test_autograd_threads_wait_at_the_backward_line(
    fake: FakeCupti, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Autograd runs the operations of a device in a thread of its own, while the owner waits."""
    original = torch.autograd.graph._engine_run_backward

    def with_a_thread(*args: object, **kwargs: object) -> object:
        fake.many("cuStreamSynchronize", 5, threads=1, name="pt_autograd_0")
        return original(*args, **kwargs)

    monkeypatch.setattr(torch.autograd, "_engine_run_backward", with_a_thread)
    x = torch.ones(2, requires_grad=True)
    with syncfree.detect_syncs() as report:
        x.sum().backward()  # backward
        fake.many("cuStreamSynchronize", 1, threads=1, name="pt_autograd_0")
    assert found(report) == {"backward": ("sync", 5)}
    assert torch.autograd._engine_run_backward is with_a_thread


def test_regions_and_permissions_split_the_log(fake: FakeCupti) -> None:
    wait = fake.call("cuStreamSynchronize")
    with syncfree.detect_syncs() as outer:
        wait()  # outer
        with syncfree.detect_syncs() as inner:
            wait()  # inner
        with syncfree.allow_sync("meant"):
            wait()
        wait()  # sync-ok: also meant
        wait()  # outer
    assert found(inner) == {"inner": ("sync", 1)}
    assert outer.count == 3
    assert outer.allowed == {"meant": 1, "also meant": 1}
    with pytest.raises(SyncError), syncfree.detect_syncs("raise"):
        wait()


def test_tasks_keep_their_own(fake: FakeCupti) -> None:
    wait = fake.call("cuStreamSynchronize")
    reports = []

    async def watched() -> None:
        with syncfree.detect_syncs() as report:
            for _ in range(5):
                wait()  # watched
                await asyncio.sleep(0)
        reports.append(report)

    async def other() -> None:
        for _ in range(5):
            wait()  # other
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(watched(), other())

    asyncio.run(both())
    assert found(reports[0]) == {"watched": ("sync", 5)}


def test_an_error_of_an_allow_function_comes_out(fake: FakeCupti) -> None:
    def allow(event: object) -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), syncfree.detect_syncs(allow=[allow]):
        fake.call("cuStreamSynchronize")()
    with pytest.raises(ZeroDivisionError), syncfree.detect_syncs(allow=[allow]):
        fake.many("cuStreamSynchronize", 9000)  # more than the log holds: another thread reads
    with syncfree.detect_syncs() as report:
        fake.call("cuStreamSynchronize")()
    assert report.count == 1


# Amounts


def test_a_million_calls(fake: FakeCupti) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def calls(times: int) -> None:
        fake.many("cuEventQuery", 39 * times)
        fake.many("cuStreamSynchronize", times)

    with syncfree.detect_syncs() as report:
        calls(12_000)
        before = resident()
        calls(13_000)
        after = resident()
    assert after - before < 32 * MIB
    assert report.count + report.lost == 25_000
    assert report.count > 8000
    assert report.lost == 0 or f"{report.lost} calls of the driver lost" in str(report)
    assert syncfree.detector.report_from_json(report.json()).lost == report.lost


def test_sixteen_threads(fake: FakeCupti) -> None:
    for _ in range(3):  # threads come and go
        with syncfree.detect_syncs(threads="all") as report:
            fake.many("cuStreamSynchronize", 500, threads=16)
        assert (report.count, report.lost) == (8000, 0)


def see(*_: object) -> Callable[..., Any]:
    return see


@contextmanager
def traced() -> Iterator[None]:
    """As by a debugger, or by coverage on Python 3.10 and 3.11."""
    former = sys.gettrace(), threading.gettrace()
    sys.settrace(see)
    threading.settrace(see)
    try:
        yield
    finally:
        sys.settrace(former[0])
        threading.settrace(former[1])


@contextmanager
def profiled() -> Iterator[None]:
    """As by `cProfile`."""
    former = sys.getprofile(), threading.getprofile()
    sys.setprofile(see)
    threading.setprofile(see)
    try:
        yield
    finally:
        sys.setprofile(former[0])
        threading.setprofile(former[1])


@contextmanager
def monitored() -> Iterator[None]:
    """As by coverage from Python 3.12 on."""
    monitoring = sys.monitoring
    tool = next(each for each in range(6) if monitoring.get_tool(each) is None)
    monitoring.use_tool_id(tool, "test")
    monitoring.register_callback(tool, monitoring.events.LINE, see)
    monitoring.set_events(tool, monitoring.events.LINE)
    try:
        yield
    finally:
        monitoring.set_events(tool, monitoring.events.NO_EVENTS)
        monitoring.register_callback(tool, monitoring.events.LINE, None)
        monitoring.free_tool_id(tool)


SINCE_3_12 = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="sys.monitoring is of Python 3.12"
)


@pytest.mark.parametrize("tool", [traced, profiled, pytest.param(monitored, marks=SINCE_3_12)])
def test_sixteen_threads_that_a_tool_follows(
    fake: FakeCupti, tool: Callable[[], AbstractContextManager[None]]
) -> None:
    wait = fake.call("cuStreamSynchronize")

    def work() -> None:
        for _ in range(500):
            wait()  # waits

    with syncfree.detect_syncs() as report, tool():
        threads = [threading.Thread(target=work) for _ in range(15)]
        for thread in threads:
            thread.start()
        work()
        for thread in threads:
            thread.join()
    assert (found(report), report.lost) == ({"waits": ("sync", 16 * 500)}, 0)


def test_more_threads_than_there_are_logs(fake: FakeCupti) -> None:
    go = threading.Event()
    wait = fake.call("cuStreamSynchronize")
    ready = threading.Semaphore(0)

    def work() -> None:
        wait()
        ready.release()
        go.wait()

    with syncfree.detect_syncs(threads="all") as report:
        threads = [threading.Thread(target=work) for _ in range(80)]
        for thread in threads:
            thread.start()
        for _ in threads:
            ready.acquire()
        go.set()
        for thread in threads:
            thread.join()
    assert report.count + report.lost == 80
    assert report.count >= 50


def test_calls_cut_in_two_by_the_region(fake: FakeCupti) -> None:
    fake.half(0, "cuStreamSynchronize")
    with syncfree.detect_syncs() as report:
        fake.half(1, "cuStreamSynchronize")
        fake.half(0, "cuStreamSynchronize")
    with syncfree.detect_syncs() as second:
        fake.half(1, "cuStreamSynchronize")
        for _ in range(40):  # deeper than calls nest
            fake.half(0, "cuStreamSynchronize")
        for _ in range(40):
            fake.half(1, "cuStreamSynchronize")
        fake.call("cuEventSynchronize")()
    assert report.findings == []
    assert second.count >= 2


def test_places_beyond_the_room_for_them(fake: FakeCupti) -> None:
    wait = fake.call("cuStreamSynchronize")
    source = "".join(f"def f{n}(call):\n    call()\n" for n in range(5000))
    scope: dict = {}
    exec(compile(source, "many_places.py", "exec"), scope)
    with syncfree.detect_syncs() as report:
        for n in range(5000):
            scope[f"f{n}"](wait)
    assert report.count + report.lost == 5000
    assert len(report.findings) > 1000
