"""What two events take by themselves is not in the times, against a driver without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from fake_driver import NEAR, FakeDriver, run, samples_of

RECORD_US = 2.9  # of the GPU, as on an H200


@pytest.fixture
def new_gpu(fake: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """A driver of which the library knows nothing yet, and whose records take time."""
    driver = fake.own_copy(tmp_path)
    monkeypatch.setenv("SYNCFREE_LIBCUDA", str(driver.path))
    driver.costs_of_a_record(RECORD_US)
    return driver


def test_it_is_taken_off(new_gpu: FakeDriver) -> None:
    timer = new_gpu.timer()
    for us in (2, 10, 1000):
        run(timer, new_gpu, us)
    new_gpu.let_pass(2000)
    assert timer.poll() == 3
    assert [s.gpu_us for s in samples_of(timer)] == pytest.approx([2, 10, 1000], **NEAR)
    assert timer.brackets() == {0: pytest.approx(RECORD_US, **NEAR)}
    ((_, _, _, total, least, _),) = timer.histories()
    assert (total, least) == pytest.approx((1012, 2), **NEAR)


def test_no_sample_is_made_before_it_is_known(new_gpu: FakeDriver) -> None:
    timer = new_gpu.timer()
    run(timer, new_gpu, 10)
    new_gpu.let_pass(30)  # the region has passed, the pairs are still behind their spin
    assert timer.poll() == 0
    assert timer.brackets() == {}
    assert timer.counts()["pending"] == 1
    new_gpu.let_pass(1000)
    assert timer.poll() == 1
    assert samples_of(timer)[0].gpu_us == pytest.approx(10, **NEAR)


def test_wait_waits_for_it_too(new_gpu: FakeDriver) -> None:
    timer = new_gpu.timer()
    run(timer, new_gpu, 10)
    assert timer.wait() == 1
    assert samples_of(timer)[0].gpu_us == pytest.approx(10, **NEAR)


def test_no_time_is_negative(new_gpu: FakeDriver) -> None:
    timer = new_gpu.timer()
    timer.prepare(0)
    new_gpu.let_pass(1000)
    new_gpu.costs_of_a_record(RECORD_US / 2)  # a clock that is higher than it was
    run(timer, new_gpu, 0)
    run(timer, new_gpu, 10)
    new_gpu.let_pass(100)
    assert timer.poll() == 2
    assert [s.gpu_us for s in samples_of(timer)] == pytest.approx([0, 10 - RECORD_US / 2], **NEAR)
    assert samples_of(timer)[0].gpu_us == 0.0
    ((_, _, _, total, least, _),) = timer.histories()
    assert least == 0.0
    assert total == pytest.approx(10 - RECORD_US / 2, **NEAR)


def test_gaps_are_without_it_too(new_gpu: FakeDriver) -> None:
    timer = new_gpu.timer()
    for us in (10, 20, 30):
        run(timer, new_gpu, us)
        if us == 20:
            new_gpu.work(5)  # of nobody
    new_gpu.let_pass(1000)
    timer.poll()
    first, second, third = samples_of(timer)
    assert first.gpu_gap_us is None
    gaps = [second.gpu_gap_us, third.gpu_gap_us]
    assert gaps == pytest.approx([0, 5], **NEAR)
    for before, after in ((first, second), (second, third)):
        passed = after.gpu_start_us - before.gpu_start_us
        assert after.gpu_gap_us is not None
        events = 2 * RECORD_US  # one pair around the work, one around the gap
        assert passed == pytest.approx(before.gpu_us + after.gpu_gap_us + events, **NEAR)


def test_it_is_measured_once_and_for_all_timers(new_gpu: FakeDriver) -> None:
    new_gpu.timer().prepare(0)
    before = {name: new_gpu.calls(name) for name in ("cuEventRecord", "cuLaunchKernel")}
    timer = new_gpu.timer()
    timer.prepare(0)
    assert new_gpu.calls("cuEventRecord") == before["cuEventRecord"] + 1  # of the timer's clock
    assert new_gpu.calls("cuLaunchKernel") == before["cuLaunchKernel"]
    run(timer, new_gpu, 10)
    new_gpu.let_pass(1000)
    timer.poll()
    assert timer.brackets() == {0: pytest.approx(RECORD_US, **NEAR)}


def test_streams_in_use_are_left_alone(new_gpu: FakeDriver) -> None:
    new_gpu.begin_capture(0x77)
    new_gpu.timer().prepare(0)
    assert new_gpu.unsafe_calls() == 0
    assert new_gpu.calls("cuEventSynchronize") == 0
    for stream in (0, 0x55, 0x77):
        assert new_gpu.busy_until(stream) == 0


def test_the_clocks_of_later_timers_do_not_stand_behind_it(new_gpu: FakeDriver) -> None:
    """A timer's axis begins with an event of which the host takes the time when it records it."""
    first, second = new_gpu.timer(capacity=1), new_gpu.timer(capacity=1)
    first.prepare(0)
    second.prepare(0)
    with first.region("r"), second.region("r"):
        new_gpu.work(10)
    new_gpu.let_pass(1e4)
    starts = []
    for timer in (first, second):
        timer.poll()
        starts.append(samples_of(timer)[0].gpu_start_us)
    # The second clock was read later, so its axis cannot lie before the first one's.
    assert starts[1] - starts[0] > -1.0


def test_a_slow_host_tries_again(new_gpu: FakeDriver) -> None:
    """Pairs that the GPU has seen before the host was through contain the host's time."""
    new_gpu.costs_of_a_record(RECORD_US, host_us=30)  # more than the first spin holds, in all
    timer = new_gpu.timer()
    timer.prepare(0)
    new_gpu.costs_of_a_record(RECORD_US)
    run(timer, new_gpu, 10)
    new_gpu.let_pass(1e4)
    assert timer.poll() == 1
    assert timer.brackets() == {0: pytest.approx(RECORD_US, **NEAR)}


def test_where_it_cannot_be_measured_times_are_whole(new_gpu: FakeDriver) -> None:
    new_gpu.costs_of_a_record(RECORD_US, host_us=1000)
    timer = new_gpu.timer()
    timer.prepare(0)
    new_gpu.costs_of_a_record(RECORD_US)
    run(timer, new_gpu, 10)
    new_gpu.let_pass(1e5)
    assert timer.poll() == 1
    assert timer.brackets() == {0: None}
    assert samples_of(timer)[0].gpu_us == pytest.approx(10 + RECORD_US, **NEAR)


def test_captured_regions_are_whole(new_gpu: FakeDriver) -> None:
    timer = new_gpu.timer()
    new_gpu.begin_capture(0x77)
    new_gpu.stream = 0x77
    run(timer, new_gpu, 10)
    new_gpu.end_capture(0x77)
    new_gpu.replay(0x77, 0x55)
    new_gpu.let_pass(1e4)
    assert timer.poll() == 1
    assert samples_of(timer)[0].gpu_us == pytest.approx(10, **NEAR)  # the fake's graphs add nothing
