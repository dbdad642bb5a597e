"""Tier 3 without a GPU: what each call means. A stand-in for CUPTI makes the calls."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator

import pytest

import syncfree
from fake_cupti import (
    DEVICE,
    HOST,
    MIB,
    ON_DEVICE,
    PAGEABLE,
    PINNED,
    WAITS,
    FakeCupti,
    found,
    installed,
)
from syncfree.detector import Verdict
from syncfree.detector.tier3 import tier as tier_module


@pytest.fixture
def fake(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeCupti]:
    yield from installed(monkeypatch, tmp_path_factory)


# Verdicts


@pytest.mark.parametrize(("function", "name"), WAITS.items())
def test_each_explicit_wait_is_found(fake: FakeCupti, function: str, name: str) -> None:
    wait = fake.call(function, ms=1)
    with syncfree.detect_syncs() as report:
        for _ in range(3):
            wait()  # here
    (one,) = report.findings
    assert (report.tier, one.event.api, one.event.verdict) == (3, name, Verdict.SYNC)
    assert (one.count, one.source, one.file) == (3, "wait()  # here", __file__)
    assert one.function.endswith("test_each_explicit_wait_is_found")
    assert one.event.library == fake.path.name  # not Python and not torch
    assert one.blocked_us is not None
    assert one.blocked_us >= 3000


def test_the_runtime_names_it_and_it_counts_once(fake: FakeCupti) -> None:
    wait = fake.call("cuStreamSynchronize", runtime="cudaStreamSynchronize_v3020")
    with syncfree.detect_syncs() as report:
        wait()
    (one,) = report.findings
    assert (one.event.api, one.count) == ("cudaStreamSynchronize", 1)


@pytest.mark.parametrize(
    ("function", "words", "direction", "size"),
    [
        ("cuMemcpyDtoH_v2", (PAGEABLE, ON_DEVICE, 12), "d2h", 12),
        ("cuMemcpyHtoD_v2_ptds", (ON_DEVICE, PAGEABLE, 13), "h2d", 13),
        ("cuMemcpyAtoH_v2", (PAGEABLE, 1, 0, 14), "d2h", 14),
        ("cuMemcpy", (ON_DEVICE, PINNED, 15), "h2d", 15),
        ("cuMemcpy", (PINNED, ON_DEVICE, 16), "d2h", 16),
        ("cuMemcpyDtoH", (PAGEABLE, ON_DEVICE, 17), None, None),  # arguments of 32 bits
    ],
)
def test_synchronous_copies_with_a_host_end(
    fake: FakeCupti, function: str, words: tuple[int, ...], direction: str | None, size: int | None
) -> None:
    copy = fake.call(function, *words)
    with syncfree.detect_syncs() as report:
        copy()
    (one,) = report.findings
    assert (one.event.direction, one.event.bytes) == (direction, size)
    want = Verdict.SYNC if direction else Verdict.CONDITIONAL
    assert one.event.verdict is want


def structure(fake: FakeCupti, words: dict[int, int]) -> int:
    """Address of a CUDA_MEMCPY2D or CUDA_MEMCPY3D with some of its 8-byte words set."""
    array = fake.arguments(*[0] * 25)
    for index, value in words.items():
        array[index] = value
    return ctypes.addressof(array)


def test_copies_of_two_and_three_dimensions_know_their_ends(fake: FakeCupti) -> None:
    # CUDA_MEMCPY2D: type of the source at word 2, of the destination at 9, size at 14 and 15.
    to_host = {2: DEVICE, 4: ON_DEVICE, 9: HOST, 10: PAGEABLE, 14: 8, 15: 4}
    on_device = {2: DEVICE, 4: ON_DEVICE, 9: DEVICE, 11: ON_DEVICE + 64, 14: 8, 15: 4}
    # CUDA_MEMCPY3D: 4, 15, and 22 to 24.
    to_device = {4: HOST, 5: PAGEABLE, 15: DEVICE, 17: ON_DEVICE, 22: 8, 23: 4, 24: 2}
    first = fake.call("cuMemcpy2D_v2", structure(fake, to_host))
    second = fake.call("cuMemcpy2D_v2", structure(fake, on_device))
    third = fake.call("cuMemcpy3D_v2", structure(fake, to_device))
    with syncfree.detect_syncs() as report:
        first()
        second()
        third()
    seen = sorted((each.event.direction, each.event.bytes) for each in report.findings)
    assert seen == [("d2h", 32), ("h2d", 64)]


def test_copies_on_the_device_are_no_waits(fake: FakeCupti) -> None:
    calls = [
        fake.call("cuMemcpyDtoD_v2", ON_DEVICE, ON_DEVICE + 64, 8),
        fake.call("cuMemcpy", ON_DEVICE, ON_DEVICE + 64, 8),
        fake.call("cuMemcpyAsync", ON_DEVICE, ON_DEVICE + 64, 8),
        fake.call("cuStreamWaitEvent", 1, 2),
        fake.call("cuLaunchHostFunc", 1, 2),
        fake.call("cuLaunchKernel"),
        fake.call("cuMemsetD32_v2", ON_DEVICE),
    ]
    with syncfree.detect_syncs() as report:
        for call in calls:
            call()
    assert report.findings == []


def test_asynchronous_copies_by_kind_of_host_memory(fake: FakeCupti) -> None:
    page = fake.host_memory()
    to_pageable = fake.call("cuMemcpyDtoHAsync_v2", page, ON_DEVICE, 8)
    to_pinned = fake.call("cuMemcpyDtoHAsync_v2", PINNED, ON_DEVICE, 8)
    small = fake.call("cuMemcpyHtoDAsync_v2", ON_DEVICE, page, MIB - 1)
    large = fake.call("cuMemcpyHtoDAsync_v2", ON_DEVICE, page, MIB)
    pinned = fake.call("cuMemcpyHtoDAsync_v2", ON_DEVICE, PINNED, 64 * MIB)
    either = fake.call("cuMemcpyAsync", page, ON_DEVICE, 8)
    freed = fake.call("cuMemcpyDtoHAsync_v2", PAGEABLE, ON_DEVICE, 8)
    freed_either = fake.call("cuMemcpyAsync", PAGEABLE, ON_DEVICE, 8)
    lists = [fake.arguments(value) for value in (page, ON_DEVICE, 24)]
    batch = fake.call("cuMemcpyBatchAsync_v2", *map(ctypes.addressof, lists), 1)
    with syncfree.detect_syncs() as report:
        to_pageable()  # to pageable
        to_pinned()  # to pinned
        small()  # small
        large()  # large
        pinned()  # pinned
        either()  # either
        freed()  # freed
        freed_either()  # freed, either
        batch()  # batch
    assert found(report) == {
        "to pageable": ("sync", 1),
        "small": ("conditional", 1),
        "large": ("sync", 1),
        "either": ("sync", 1),
        "freed": ("sync", 1),
        "freed, either": ("conditional", 1),
        "batch": ("sync", 1),
    }


def test_without_a_calibration_large_copies_do_not_count(
    fake: FakeCupti, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier_module, "waiting_size", lambda: None)
    large = fake.call("cuMemcpyHtoDAsync_v2", ON_DEVICE, fake.host_memory(), 64 * MIB)
    with syncfree.detect_syncs() as report:
        large()
    assert (report.count, len(report.findings)) == (0, 1)


def test_pinned_memory_is_followed_in_the_callback(fake: FakeCupti) -> None:
    """What the driver would say later does not matter: the copy was made while it was pinned."""
    memory = fake.host_memory(4096)
    box = fake.arguments(memory)
    pin = fake.call("cuMemHostAlloc", ctypes.addressof(box), 4096)
    register = fake.call("cuMemHostRegister_v2", memory, 4096)
    copy = fake.call("cuMemcpyDtoHAsync_v2", memory + 64, ON_DEVICE, 8)
    for begin, end in ((pin, "cuMemFreeHost"), (register, "cuMemHostUnregister")):
        free = fake.call(end, memory)
        with syncfree.detect_syncs() as report:
            begin()  # pin
            copy()  # while pinned
            free()  # free
            copy()  # when freed
        assert found(report) == {
            "pin": ("conditional", 1),
            "free": ("conditional", 1),
            "when freed": ("sync", 1),
        }


def test_memory_that_was_pinned_before_and_is_freed(fake: FakeCupti) -> None:
    """Nobody can say any more whether it was pinned at the time of the copy."""
    memory = fake.host_memory(4096) + 1024
    copy = fake.call("cuMemcpyDtoHAsync_v2", memory + 64, ON_DEVICE, 8)
    below = fake.call("cuMemcpyDtoHAsync_v2", memory - 64, ON_DEVICE, 8)
    free = fake.call("cuMemFreeHost", memory)
    with syncfree.detect_syncs() as report:
        free()
        copy()  # copy
        below()  # below
    assert found(report)["copy"] == ("conditional", 1)
    assert found(report)["below"] == ("sync", 1)


def test_a_copy_and_its_own_wait_are_one_finding(fake: FakeCupti) -> None:
    page = fake.host_memory()
    copy = fake.call("cuMemcpyDtoHAsync_v2", page, ON_DEVICE, 4, runtime="cudaMemcpyAsync_v3020")
    pinned = fake.call("cuMemcpyDtoHAsync_v2", PINNED, ON_DEVICE, 4)
    allocate = fake.call("cuMemAlloc_v2", fake.host_memory(), 64)
    wait = fake.call("cuStreamSynchronize", runtime="cudaStreamSynchronize_v3020")
    with syncfree.detect_syncs() as report:
        copy(), wait()  # read
        copy(), allocate(), wait()  # with another call between
        pinned(), wait()  # of pinned memory
        copy()  # copy alone
        wait()  # wait alone
    assert found(report)["read"] == ("sync", 1)
    assert report.count == 5
    read = next(each.event for each in report.findings if each.source.endswith("# read"))
    assert (read.api, read.direction, read.bytes) == ("cudaMemcpyAsync", "d2h", 4)
    assert read.host_memory == "pageable"
    assert "cudaStreamSynchronize" in read.why


def test_calls_that_may_wait_are_shown(fake: FakeCupti) -> None:
    box = fake.host_memory()
    calls = {
        "cuMemAlloc_v2": fake.call("cuMemAlloc_v2", box, 64, runtime="cudaFree_v3020"),
        "cuMemFree_v2": fake.call("cuMemFree_v2", ON_DEVICE),
        "cuModuleLoadData": fake.call("cuModuleLoadData", 0, ms=1),
        "cuMemcpyPeer": fake.call("cuMemcpyPeer", ON_DEVICE, 0, ON_DEVICE, 0, 8),
        "cuGraphInstantiateWithParams": fake.call("cuGraphInstantiateWithParams", 0),
        "cuMemsetD32_v2": fake.call("cuMemsetD32_v2", PINNED),
    }
    loaded = fake.call("cuModuleLoadData", 0)  # nothing to load: too quick
    with syncfree.detect_syncs("raise") as report:
        for call in calls.values():
            call()
        loaded()
    assert {each.event.verdict for each in report.findings} == {Verdict.CONDITIONAL}
    apis = {each.event.api for each in report.findings}
    assert apis == {
        "cudaFree",
        "cuMemFree",
        "cuModuleLoadData",
        "cuMemcpyPeer",
        "cuGraphInstantiateWithParams",
        "cuMemsetD32",
    }


def test_the_first_time_is_labelled(fake: FakeCupti) -> None:
    allocate = fake.call("cuMemAlloc_v2", fake.host_memory(), 64)
    for times in (1, 2):
        with syncfree.detect_syncs() as report:
            for _ in range(times):
                allocate()
        (one,) = report.findings
        assert (one.count, one.event.one_time) == (times, times == 1)


def test_failed_calls_did_not_wait(fake: FakeCupti) -> None:
    wait = fake.call("cuStreamSynchronize", result=400)
    with syncfree.detect_syncs() as report:
        wait()
    assert report.findings == []


# A free that really waits


def marked_watch(fake: FakeCupti) -> tuple[object, object]:
    """A region's watch with marks in memory of the test."""
    watch = syncfree.detector.session.session.tier._watch
    words = fake.arguments(*[0] * 16)
    watch.use_marks(ctypes.addressof(words))
    return watch, words


@pytest.mark.parametrize(
    ("ms", "busy", "reaches", "verdict"),
    [
        (2, True, True, "sync"),  # the GPU was done only when it returned
        (2, True, False, "conditional"),  # it returned before the GPU was done
        (2, False, False, "conditional"),  # the GPU had nothing to do
        (0, True, True, "conditional"),  # too quick: the GPU happened to finish
    ],
)
@pytest.mark.parametrize("function", ["cuMemFree_v2", "cuMemHostRegister_v2"])
def test_frees_and_pinning_count_if_they_outlast_the_gpu(
    fake: FakeCupti, function: str, ms: int, busy: bool, reaches: bool, verdict: str
) -> None:
    call = fake.call(function, fake.host_memory(4096), 4096, ms=ms, reaches=reaches)
    with syncfree.detect_syncs() as report:
        watch, _ = marked_watch(fake)
        fake.library.fake_reach()
        if busy:
            assert watch.put_mark(7)
            assert watch.marks_pending
        call()  # call
        fake.library.fake_reach()
    assert found(report) == {"call": (verdict, 1)}


def test_marks_stay_out_of_captures(fake: FakeCupti) -> None:
    with syncfree.detect_syncs():
        watch, _ = marked_watch(fake)
        fake.library.fake_reach()
        fake.library.fake_capture(1)
        assert not watch.put_mark(7)
        assert not watch.marks_pending
        fake.library.fake_capture(0)
        for stream in range(1, 17):  # as many as there is room for
            assert watch.put_mark(stream)
        assert not watch.put_mark(99)
        fake.library.fake_reach()
        assert watch.put_mark(99)
        fake.library.fake_reach()


# Polls


def hear_launches(fake: FakeCupti, not_ready: object) -> None:
    """Two questions make the detector listen to launches."""
    until = time.monotonic() + 30
    while not fake.is_enabled("cuLaunchKernel"):
        assert time.monotonic() < until
        not_ready()
        time.sleep(0.001)
    time.sleep(0.01)


def test_a_loop_of_questions_is_a_wait(fake: FakeCupti) -> None:
    not_ready = fake.call("cuEventQuery", 5, result=600)
    ready = fake.call("cuEventQuery", 5)
    with syncfree.detect_syncs() as report:
        assert not fake.is_enabled("cuLaunchKernel")
        hear_launches(fake, fake.call("cuEventQuery", 4, result=600))
        for call in [not_ready] * 6 + [ready]:
            call()  # loop
    assert found(report) == {"loop": ("poll", 1)}
    assert report.count == 1
    (loop,) = report.findings
    why = "The line asks in a loop: 5 queries in a row found the GPU busy, until it was done."
    assert loop.event.why == why  # the first begins the loop and is not among them
    assert not fake.is_enabled("cuLaunchKernel")


@pytest.mark.parametrize(("busy", "polls"), [(3, 0), (4, 1)])
def test_a_loop_has_three_queries_after_the_first(fake: FakeCupti, busy: int, polls: int) -> None:
    not_ready = fake.call("cuEventQuery", 5, result=600)
    ready = fake.call("cuEventQuery", 5)
    with syncfree.detect_syncs() as report:
        hear_launches(fake, fake.call("cuEventQuery", 4, result=600))
        for call in [not_ready] * busy + [ready]:
            call()
    assert report.count == polls


def test_who_asks_once_a_step_does_not_wait(fake: FakeCupti) -> None:
    not_ready = fake.call("cuEventQuery", 5, result=600)
    ready = fake.call("cuEventQuery", 5)
    launch = fake.call("cuLaunchKernel")
    record = fake.call("cuEventRecord", 5, 0)
    with syncfree.detect_syncs() as report:
        hear_launches(fake, fake.call("cuEventQuery", 4, result=600))
        for work in (launch, record):
            for call in [not_ready] * 6 + [ready]:
                work()
                call()
        for call in [not_ready, not_ready, ready, ready, ready]:  # too few
            call()
        not_ready()
        not_ready()
        not_ready()
        not_ready()  # four lines
        ready()
    assert report.findings == []
