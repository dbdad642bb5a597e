"""The timer's C++ against a driver without a GPU: samples, streams, slots and drops."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fake_driver import NEAR, SOURCE, FakeDriver, compiled, run, samples_of
from syncfree.errors import TimerError


def test_a_region_becomes_a_sample_when_the_gpu_has_passed(fake: FakeDriver) -> None:
    timer = fake.timer()
    run(timer, fake, 100)
    assert timer.poll() == 0
    assert timer.counts()["pending"] == 1
    fake.let_pass(99)
    assert timer.poll() == 0
    fake.let_pass(1)
    assert timer.poll() == 1
    (sample,) = samples_of(timer)
    assert sample.gpu_us == pytest.approx(100, **NEAR)
    assert sample.stream == fake.stream
    assert sample.device == 0
    assert sample.first
    assert not sample.captured
    assert sample.thread == threading.get_ident()
    assert fake.calls("cuEventSynchronize") == 0


def test_only_what_has_passed_and_in_order(fake: FakeDriver) -> None:
    timer = fake.timer()
    for us in (10, 20, 30):
        run(timer, fake, us)
    fake.let_pass(30)
    assert timer.poll() == 2
    assert [s.gpu_us for s in samples_of(timer)] == pytest.approx([10, 20], **NEAR)
    before = fake.calls("cuEventElapsedTime_v2")
    assert timer.poll() == 0
    assert fake.calls("cuEventElapsedTime_v2") == before + 1  # of the oldest one, no other
    fake.let_pass(30)
    assert timer.poll() == 1


def test_wait_is_the_only_call_that_waits(fake: FakeDriver) -> None:
    timer = fake.timer()
    for _ in range(200):
        run(timer, fake, 1000)
        timer.poll()
    assert fake.calls("cuEventSynchronize") == 0
    timer.wait()
    assert fake.calls("cuEventSynchronize") == 1
    assert timer.counts()["pending"] == 0


def test_wait_waits_for_the_clock_too(
    fake: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stream may come last on a GPU that others keep busy."""
    copy = fake.own_copy(tmp_path)
    monkeypatch.setenv("SYNCFREE_LIBCUDA", str(copy.path))
    first_stream_of_ours = 0x1001
    copy.work(1e5, first_stream_of_ours)
    timer = copy.timer()
    run(timer, copy, 10)
    copy.let_pass(9e4)
    assert timer.poll() == 0  # or the stream is another one
    assert timer.wait() == 1


def test_gaps_on_the_stream(fake: FakeDriver) -> None:
    timer = fake.timer()
    run(timer, fake, 10)
    fake.work(7)  # of nobody
    run(timer, fake, 10)
    fake.let_pass(100)  # 73 of them idle
    run(timer, fake, 10)
    fake.let_pass(10)
    timer.poll()
    gaps = [s.gpu_gap_us for s in samples_of(timer)]
    assert gaps[0] is None
    assert gaps[1:] == pytest.approx([7, 73], **NEAR)
    starts = [s.gpu_start_us for s in samples_of(timer)]
    assert starts[1] - starts[0] == pytest.approx(17, **NEAR)
    assert starts[2] - starts[0] == pytest.approx(100, **NEAR)


def test_nested_regions(fake: FakeDriver) -> None:
    timer = fake.timer()
    for _ in range(2):
        with timer.region("step"):
            run(timer, fake, 10, "forward")
            fake.work(3)
            run(timer, fake, 20, "backward")
    fake.let_pass(100)
    assert timer.poll() == 6
    step, again = samples_of(timer, "step")
    forward, backward = samples_of(timer, "forward"), samples_of(timer, "backward")
    assert step.gpu_us == pytest.approx(33, **NEAR)
    assert step.depth == step.parent == 0
    assert [s.parent for s in forward] == [s.parent for s in backward] == [1, again.sequence]
    assert {s.depth for s in (*forward, *backward)} == {1}
    assert [s.gpu_gap_us for s in forward] == [None, None]  # nothing before in the same step
    assert [s.gpu_gap_us for s in backward] == pytest.approx([3, 3], **NEAR)
    assert again.gpu_gap_us == pytest.approx(0, **NEAR)
    assert forward[0].gpu_start_us == pytest.approx(step.gpu_start_us, **NEAR)


def test_streams_do_not_hold_each_other_up(fake: FakeDriver) -> None:
    timer = fake.timer()
    for stream, us in ((1, 1000), (2, 10), (3, 30)):
        fake.stream = stream
        run(timer, fake, us)
    fake.let_pass(50)
    assert timer.poll() == 2
    assert [(s.stream, round(s.gpu_us)) for s in samples_of(timer)] == [(2, 10), (3, 30)]


def test_the_end_is_on_the_stream_of_the_beginning(fake: FakeDriver) -> None:
    timer = fake.timer()
    with timer.region("r"):
        fake.work(10)
        fake.stream = 2
        fake.work(500)
    fake.let_pass(10)
    assert timer.poll() == 1
    (sample,) = samples_of(timer)
    assert sample.gpu_us == pytest.approx(10, **NEAR)


def test_more_streams_than_queues(fake: FakeDriver) -> None:
    timer = fake.timer()
    for stream in range(1, 500):
        fake.stream = stream
        run(timer, fake, stream)
        fake.let_pass(stream)
        assert timer.poll() == 1
    expected = list(range(1, 500))
    assert [s.gpu_us for s in samples_of(timer)] == pytest.approx(expected, **NEAR)
    assert {s.stream for s in samples_of(timer)} == set(expected)
    assert {s.gpu_gap_us for s in samples_of(timer)} == {None}  # each the first of its stream


def test_full_slots_drop_the_oldest(fake: FakeDriver) -> None:
    timer = fake.timer(capacity=4)
    for us in range(1, 8):
        run(timer, fake, us)
    assert timer.counts()["dropped"] == 3
    fake.let_pass(100)
    assert timer.poll() == 4
    assert [s.gpu_us for s in samples_of(timer)] == pytest.approx([4, 5, 6, 7], **NEAR)


def test_the_oldest_of_all_streams_is_dropped(fake: FakeDriver) -> None:
    timer = fake.timer(capacity=3)
    for stream in (7, 8, 7, 9):
        fake.stream = stream
        run(timer, fake, 10 * stream)
    fake.let_pass(1000)
    timer.poll()
    assert [(s.sequence, s.stream) for s in samples_of(timer)] == [(2, 8), (3, 7), (4, 9)]


def test_what_has_passed_is_not_dropped(fake: FakeDriver) -> None:
    timer = fake.timer(capacity=4)
    for us in range(1, 100):
        run(timer, fake, us)
        fake.let_pass(us)
    timer.poll()
    assert timer.counts()["dropped"] == 0
    assert len(samples_of(timer)) == 99


def test_more_open_regions_than_slots(fake: FakeDriver) -> None:
    timer = fake.timer(capacity=2)
    with timer.region("a"), timer.region("b"):
        with pytest.raises(TimerError, match="larger capacity"):
            timer.region("c").start()
        fake.work(5)
    fake.let_pass(5)
    assert timer.poll() == 2


def test_nothing_is_made_after_the_start(fake: FakeDriver) -> None:
    timer = fake.timer(capacity=128, stamp_every=8)
    timer.prepare(0)
    run(timer, fake, 1)
    fake.let_pass(1)
    timer.poll()
    made = fake.events(), fake.calls("cuMemHostAlloc"), fake.calls("cuModuleLoadData")
    for _ in range(20_000):
        run(timer, fake, 1)
        fake.let_pass(1)
    timer.wait()
    assert (fake.events(), fake.calls("cuMemHostAlloc"), fake.calls("cuModuleLoadData")) == made
    assert timer.counts()["lost"] == 0
    ((_, _, count, total, least, kept),) = timer.histories()
    assert count == 20_001
    assert timer.counts()["dropped"] == 0
    assert len(kept) == 1024
    assert least == pytest.approx(1, **NEAR)
    assert total >= count * 0.99


def test_what_a_region_asks_of_the_driver(fake: FakeDriver) -> None:
    """Two records, whether it is captured, and later two times; what is beyond is rare."""
    names = ("EventRecord", "StreamIsCapturing", "EventElapsedTime_v2", "EventQuery")
    rare, never = ("ThreadExchangeStreamCaptureMode",), ("LaunchKernel", "EventSynchronize")
    contexts = ("CtxGetCurrent", "CtxPushCurrent_v2")
    timer = fake.timer()
    timer.prepare(0)
    for _ in range(100):
        run(timer, fake, 1)
        fake.let_pass(1)

    def calls() -> list[int]:
        return [fake.calls(f"cu{name}") for name in (*names, *rare, *never, *contexts)]

    before, regions = calls(), 6400
    for _ in range(regions):
        with timer.region("r"):
            fake.work(1)
        fake.let_pass(1)
    spent = [(b - a) / regions for a, b in zip(before, calls(), strict=True)]
    assert spent[:2] == [2, 1]
    assert 1.9 <= spent[2] <= 2.1
    assert spent[3] <= 0.13  # whether the GPU had begun, and whether it has passed: 1 in 16 each
    assert spent[4] <= 0.3
    assert spent[5:7] == [0, 0]
    assert 2 <= spent[7] <= 2.2  # at its beginning, at its end, and where the queues are looked at
    assert spent[8] == 0
    assert timer.counts()["dropped"] == 0


def test_events_serve_the_next_timer(fake: FakeDriver) -> None:
    for _ in range(20):
        timer = fake.timer(stamp_every=1)
        run(timer, fake, 100)
        made = fake.events()
        del timer
    assert fake.events() == made


def test_the_regions_between_polls_are_looked_at(fake: FakeDriver) -> None:
    timer = fake.timer(capacity=2048)
    for _ in range(2000):
        run(timer, fake, 1)
        fake.let_pass(1)
    assert timer.counts()["pending"] < 100  # nobody has polled


def test_one_look_takes_few_regions_of_all_streams(fake: FakeDriver) -> None:
    """It is made while a region closes, whose time must not grow with the number of streams."""
    timer = fake.timer(capacity=2048)
    streams = range(0x100, 0x130)
    for fake.stream in streams:
        run(timer, fake, 10)
    fake.let_pass(1e6)
    before = fake.calls("cuEventElapsedTime_v2")
    for fake.stream in streams[:32]:  # one look: the last one found the GPU behind
        run(timer, fake, 10)
    assert 0 < fake.calls("cuEventElapsedTime_v2") - before <= 2 * 24 + 1
    fake.let_pass(1e6)
    assert timer.poll() == len(streams) + 32 - 24


def test_a_gpu_that_is_behind_is_asked_less_often(fake: FakeDriver) -> None:
    timer = fake.timer(capacity=4096)
    regions = 3200
    for _ in range(regions):
        run(timer, fake, 10)
    probes = 4 + regions // 16
    assert fake.calls("cuEventQuery") <= probes + regions // 64 + 4
    fake.let_pass(1e6)
    before = timer.counts()["pending"]
    for _ in range(640):
        run(timer, fake, 1)
        fake.let_pass(1)
    # And often again once it is not: each look takes more than came.
    assert timer.counts()["pending"] < before


def test_a_driver_that_looks_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 570 there was no second version of the call."""
    library = compiled(SOURCE, tmp_path / "libfakecuda.so", "-DBEFORE_DRIVER_570")
    monkeypatch.setenv("SYNCFREE_LIBCUDA", str(library))
    fake = FakeDriver(library)
    fake.settle(0)
    timer = fake.timer()
    for us in (10, 20, 30):
        run(timer, fake, us)
    fake.let_pass(30)
    assert timer.poll() == 2
    assert [s.gpu_us for s in samples_of(timer)] == pytest.approx([10, 20], **NEAR)
    assert fake.calls("cuEventElapsedTime") == 2 * 2 + 1


def test_only_regions_that_are_known_to_have_passed_are_timed(fake: FakeDriver) -> None:
    """Between regions, that is: asked for times of others, the driver looks for each of them."""
    timer = fake.timer(capacity=2048)
    for _ in range(1600):
        run(timer, fake, 10)
        fake.let_pass(1)  # the GPU falls behind
    assert fake.calls("cuEventQuery") > 50
    timed = 1600 - timer.counts()["pending"]
    # And once more for the timer's clock, which nothing has asked for before.
    assert fake.calls("cuEventElapsedTime_v2") == 2 * timed + 1
    assert timer.counts()["pending"] > 1000
    fake.let_pass(1e5)
    for _ in range(4000):
        run(timer, fake, 1)
        fake.let_pass(2)
    assert timer.counts()["pending"] < 100
    assert timer.counts()["dropped"] == 0
