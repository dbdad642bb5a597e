"""Regions of threads and coroutines, used again, cancelled and forgotten, without a GPU."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fake_driver import NEAR, FakeDriver, run, samples_of
from syncfree.errors import TimerError


def test_regions_of_threads(fake: FakeDriver) -> None:
    timer = fake.timer()
    region = timer.region("r").start()
    fake.work(10)
    thread = threading.Thread(target=region.stop)
    thread.start()
    thread.join()
    run(timer, fake, 5, "outermost")
    fake.let_pass(15)
    assert timer.poll() == 2
    first, second = samples_of(timer)
    assert first.gpu_us == pytest.approx(10, **NEAR)
    assert second.depth == 0  # the other thread's end took the region off this one


def test_coroutines_that_take_turns(fake: FakeDriver) -> None:
    timer = fake.timer()

    async def task(name: str, before: float, after: float) -> None:
        with timer.region(name):
            fake.work(before)
            await asyncio.sleep(0)
            fake.work(after)

    async def main() -> None:
        await asyncio.gather(task("a", 1, 10), task("b", 2, 20))

    asyncio.run(main())
    run(timer, fake, 5, "c")
    fake.let_pass(100)
    assert timer.poll() == 3
    by_name = {s.name: s for s in samples_of(timer)}
    assert by_name["a"].gpu_us == pytest.approx(1 + 2 + 10, **NEAR)
    assert by_name["b"].gpu_us == pytest.approx(2 + 10 + 20, **NEAR)
    assert by_name["c"].depth == 0


def test_ends_in_another_order_than_beginnings(fake: FakeDriver) -> None:
    timer = fake.timer()
    first, second = timer.region("first").start(), timer.region("second").start()
    first.stop()
    run(timer, fake, 1, "inside")
    second.stop()
    fake.let_pass(1)
    timer.poll()
    inside, second_one = samples_of(timer, "inside")[0], samples_of(timer, "second")[0]
    assert (inside.parent, inside.depth) == (second_one.sequence, 2)


def test_siblings_that_overlap_have_no_negative_gap(fake: FakeDriver) -> None:
    timer = fake.timer()
    region = timer.region("outer").start()
    fake.work(5)
    thread = threading.Thread(target=lambda: run(timer, fake, 5, "other"))
    thread.start()
    thread.join()
    fake.work(5)
    region.stop()
    fake.let_pass(15)
    assert timer.poll() == 2
    outer, other = samples_of(timer)
    assert (outer.depth, other.depth) == (0, 0)
    assert outer.gpu_us == pytest.approx(15, **NEAR)
    assert outer.gpu_gap_us == 0


def test_one_object_again_and_again(fake: FakeDriver) -> None:
    timer = fake.timer()
    region = timer.region("r", "h2d", bytes=100)
    for size in (100, 200):
        region.bytes = size
        with region:
            fake.work(10)
            with pytest.raises(TimerError, match="'r' is open already"):
                region.start()
    with pytest.raises(TimerError, match="'r' is not open"):
        region.stop()
    fake.let_pass(20)
    timer.poll()
    assert [(s.bytes, s.kind) for s in samples_of(timer)] == [(100, "h2d"), (200, "h2d")]
    assert (region.name, region.kind, region.bytes) == ("r", "h2d", 200)


def test_names_of_a_class_of_their_own(fake: FakeDriver) -> None:
    """They may run code as they go, so none is kept but the first of each."""
    timer = fake.timer(capacity=256)

    class Name(str):
        def __del__(self) -> None:
            with timer.region("inner"):
                pass

    for i in range(40):
        with timer.region(Name(f"outer{i % 3}")):
            pass
    fake.let_pass(1000)
    timer.poll()
    counts = {name: count for name, _, count, *_ in timer.histories()}
    assert counts == {"inner": 37, "outer0": 14, "outer1": 13, "outer2": 13}


def test_cancelled_and_forgotten_regions(fake: FakeDriver) -> None:
    timer = fake.timer()
    timer.region("r").start().cancel()
    timer.region("r").cancel()  # not open: nothing to do
    assert timer.counts()["lost"] == 0
    timer.region("r").start()  # and gone
    counts = timer.counts()
    assert counts["lost"] == 1
    assert counts["problem"] == "region 'r' was never ended"
    run(timer, fake, 1)
    fake.let_pass(1)
    timer.poll()
    assert samples_of(timer)[0].depth == 0


def test_clear(fake: FakeDriver) -> None:
    timer = fake.timer()
    run(timer, fake, 1)
    run(timer, fake, 100)
    fake.let_pass(1)
    timer.clear()
    fake.let_pass(100)
    timer.poll()  # it began before
    assert samples_of(timer) == []
    run(timer, fake, 3)
    fake.let_pass(3)
    timer.poll()
    assert [s.gpu_us for s in samples_of(timer)] == pytest.approx([3], **NEAR)
    assert not samples_of(timer)[0].first


def test_nvtx_ranges(fake: FakeDriver) -> None:
    calls: list[str] = []
    timer = fake.timer(push_range=calls.append, pop_range=lambda: calls.append("pop"))
    with timer.region("a"), timer.region("b"):
        pass
    timer.region("c").start().cancel()
    assert calls == ["a", "b", "pop", "pop", "c", "pop"]


def test_a_range_ends_where_its_region_cannot_begin(fake: FakeDriver) -> None:
    calls: list[str] = []

    def push(name: str) -> None:
        calls.append(name)
        fake.fail(719)

    timer = fake.timer(push_range=push, pop_range=lambda: calls.append("pop"))
    with pytest.raises(TimerError, match="cuEventRecord failed"):
        timer.region("a").start()
    assert calls == ["a", "pop"]
