"""Clock stamps, captured regions and single events, against a driver without a GPU."""

from __future__ import annotations

import pytest

from fake_driver import NEAR, FakeDriver, run, samples_of
from syncfree import _runtime
from syncfree.errors import TimerError


def test_clock_stamps(fake: FakeDriver) -> None:
    timer = fake.timer(stamp_every=2)
    fake.set_clock(1500.0, 3)
    for us in (100, 100, 49, 49, 100, 100):
        run(timer, fake, us)
        fake.let_pass(us)
    timer.poll()
    clocks = [s.mhz for s in samples_of(timer)]
    assert clocks[0] is clocks[2] is clocks[4] is None  # not stamped
    assert clocks[3] is None  # too short
    assert clocks[1] == pytest.approx(1500, rel=1e-3)
    assert clocks[5] == pytest.approx(1500, rel=1e-3)


def test_a_stamp_under_way_meets_no_other(fake: FakeDriver) -> None:
    """Whose owner is gone: the kernel that writes it is behind work still."""
    fake.set_context(1)
    fake.work(1000)
    abandoned = _runtime.ClockStamp()
    abandoned.record(fake.stream)
    del abandoned
    stamp = _runtime.ClockStamp()
    stamp.record(0x66)
    fake.let_pass(10)
    assert stamp.ready()
    fake.let_pass(2000)
    assert stamp.ready()


def test_stamps_of_a_timer_that_is_gone_meet_no_others(fake: FakeDriver) -> None:
    earlier = fake.timer(stamp_every=1)
    fake.work(5000)
    run(earlier, fake, 100)
    cancelled = earlier.region("cancelled").start()
    cancelled.cancel()
    del earlier, cancelled
    fake.stream = 0x66
    timer = fake.timer(stamp_every=1)
    run(timer, fake, 100)
    fake.let_pass(200)
    fake.stream = 0x55
    fake.let_pass(10_000)
    assert timer.poll() == 1
    assert samples_of(timer)[0].mhz is not None


def test_no_clock_from_two_sms(fake: FakeDriver) -> None:
    timer = fake.timer(stamp_every=1)
    with timer.region("r"):
        fake.work(100)
        fake.set_clock(1500.0, 4)
    fake.let_pass(100)
    assert timer.poll() == 1
    assert samples_of(timer)[0].mhz is None


def test_whether_the_gpu_had_begun(fake: FakeDriver) -> None:
    timer = fake.timer()
    run(timer, fake, 100)  # on an idle stream
    run(timer, fake, 100)  # behind the first
    fake.let_pass(200)
    run(timer, fake, 100)
    fake.let_pass(100)
    timer.poll()
    assert [s.queued for s in samples_of(timer)] == [False, True, False]


def test_captured_regions_have_no_times_of_earlier_owners_of_their_events(fake: FakeDriver) -> None:
    earlier = fake.timer(capacity=8)
    for _ in range(8):
        run(earlier, fake, 10)
    fake.let_pass(100)
    earlier.poll()
    del earlier  # whose events serve the next timer
    timer = fake.timer(capacity=2)
    fake.begin_capture(fake.stream)
    run(timer, fake, 10)
    fake.end_capture(fake.stream)
    fake.let_pass(100)
    assert timer.poll() == 0  # not replayed yet


def test_captured_regions_are_read_after_replays(fake: FakeDriver) -> None:
    timer = fake.timer()
    side = 0x77
    fake.begin_capture(side)
    fake.stream = side
    with timer.region("step"):
        run(timer, fake, 10, "forward")
        run(timer, fake, 20, "backward")
    fake.end_capture(side)
    fake.stream = 0x55
    fake.let_pass(100)
    assert timer.poll() == 0  # not replayed yet
    fake.replay(side, fake.stream)
    fake.let_pass(29)
    assert timer.poll() == 1  # forward
    fake.let_pass(1)
    assert timer.poll() == 2
    assert timer.poll() == 0  # each replay once
    fake.let_pass(1000)
    fake.replay(side, fake.stream)
    assert timer.poll() == 0
    fake.let_pass(30)
    assert timer.poll() == 3
    assert fake.unsafe_calls() == 0
    for name, us in (("step", 30), ("forward", 10), ("backward", 20)):
        found = samples_of(timer, name)
        assert [s.gpu_us for s in found] == pytest.approx([us, us], **NEAR)
        assert all(s.captured and s.host_enqueue_us is None for s in found)
        assert [s.first for s in found] == [True, False]
    starts = sorted(s.gpu_start_us for s in samples_of(timer, "step"))
    assert starts[1] - starts[0] == pytest.approx(1030, **NEAR)


def test_replays_long_after_the_timer_was_made(fake: FakeDriver) -> None:
    """The driver's times are floats of milliseconds: after hours they would tell nothing apart."""
    timer = fake.timer()
    side, hour = 0x77, 3.6e9 + 12_345.678
    fake.begin_capture(side)
    fake.stream = side
    run(timer, fake, 10)
    fake.end_capture(side)
    fake.let_pass(hour)
    for _ in range(3):
        fake.replay(side, 0x55)
        fake.let_pass(10)
        assert timer.poll() == 1
        assert timer.poll() == 0  # meanwhile the clock is moved
        fake.let_pass(90)
    starts = sorted(s.gpu_start_us for s in samples_of(timer))
    assert starts[2] - starts[1] == pytest.approx(100, abs=0.1)
    assert [s.gpu_us for s in samples_of(timer)] == pytest.approx([10] * 3, **NEAR)


def test_a_capture_elsewhere_is_not_spoilt(fake: FakeDriver) -> None:
    timer = fake.timer(stamp_every=4)
    fake.begin_capture(0x77)
    for _ in range(100):  # makes its events and kernels, probes, stamps and polls
        run(timer, fake, 10)
        fake.let_pass(10)
        timer.poll()
    assert fake.unsafe_calls() == 0
    assert len(samples_of(timer)) == 100
    fake.stream = 0  # the legacy stream must not even be asked to record
    before = fake.calls("cuEventRecord")
    run(timer, fake, 10)
    assert fake.calls("cuEventRecord") == before
    assert timer.counts()["skipped"] == 1


def test_event_pairs(fake: FakeDriver) -> None:
    pair = _runtime.EventPair()
    assert not pair.ready()
    with pytest.raises(TimerError, match="before it was started"):
        pair.stop(5)
    pair.start(5)
    fake.work(10, 5)
    assert not pair.ready()
    with pytest.raises(TimerError, match="not known yet"):
        pair.microseconds()
    pair.stop(5)
    assert not pair.ready()
    fake.let_pass(10)
    assert pair.ready()
    assert pair.microseconds() == pytest.approx(10, **NEAR)
    pair.start(5)
    assert not pair.ready()


def test_stamps_and_spins(fake: FakeDriver) -> None:
    first, second = _runtime.ClockStamp(), _runtime.ClockStamp()
    assert not first.ready()
    with pytest.raises(TimerError, match="has not arrived"):
        first.read()
    first.record(5)
    assert first.ready()
    _runtime.spin(5, 200.0)
    assert fake.busy_until(5) - fake.now() == 200_000
    second.record(5)
    assert not second.ready()
    fake.let_pass(200)
    assert second.ready()
    assert second.read()[0] - first.read()[0] == 200_000
    assert second.mhz_since(first) == pytest.approx(1980, rel=1e-3)
    fake.set_clock(1980.0, 8)
    second.record(5)
    assert second.mhz_since(first) is None


@pytest.mark.parametrize("us", [-1.0, float("nan"), float("inf"), 1e9])
def test_unbounded_spins_are_refused(fake: FakeDriver, us: float) -> None:
    with pytest.raises(ValueError, match="spin takes 0 to 10000000 microseconds"):
        _runtime.spin(5, us)


def test_without_a_context(fake: FakeDriver) -> None:
    fake.set_context(0)
    for call in (_runtime.EventPair().start, _runtime.ClockStamp().record):
        with pytest.raises(TimerError, match="no CUDA context is current on this thread"):
            call(5)
