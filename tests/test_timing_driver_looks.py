"""Looks at the queues between regions where nobody polls: on two devices, and after a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from fake_driver import NEAR, FakeDriver, run, samples_of
from syncfree import _runtime
from syncfree.errors import TimerError


def test_each_of_two_devices_is_looked_at(fake: FakeDriver) -> None:
    """Also if their regions take strict turns."""
    timer = fake.timer(capacity=2048, history=2048)
    for _ in range(1000):
        for fake.device in (0, 1):
            run(timer, fake, 1)
            fake.let_pass(1)
    assert timer.counts()["pending"] < 2 * 100
    timer.poll()
    assert [sum(s.device == each for s in samples_of(timer)) for each in (0, 1)] == [1000, 1000]


@pytest.fixture
def starved(
    fake: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[FakeDriver, _runtime.RegionTimer]:
    """A timer on a device that makes no event, so that its first looks fail."""
    own = fake.own_copy(tmp_path)  # without events that other tests left
    monkeypatch.setenv("SYNCFREE_LIBCUDA", str(own.path))
    own.settle(0)
    timer = own.timer(capacity=4096)
    timer.prepare(0)
    own.break_events(True)
    return own, timer


def test_looks_go_on_after_one_that_failed(
    starved: tuple[FakeDriver, _runtime.RegionTimer],
) -> None:
    fake, timer = starved
    problems = []
    for _ in range(100):
        region = timer.region("r").start()
        fake.work(1)
        fake.let_pass(1)
        try:
            region.stop()
        except TimerError as error:
            problems.append(str(error))
    assert len(problems) > 1
    assert all("cuEventCreate failed" in each for each in problems)
    fake.break_events(False)
    for _ in range(1000):
        run(timer, fake, 1)
        fake.let_pass(1)
    assert timer.counts()["pending"] < 100
    timer.poll()
    assert timer.counts()["lost"] == 0
    assert [s.gpu_us for s in samples_of(timer)] == pytest.approx([1] * 1024, **NEAR)


def test_a_region_whose_look_failed_keeps_its_gap(
    starved: tuple[FakeDriver, _runtime.RegionTimer],
) -> None:
    fake, timer = starved
    run(timer, fake, 1)
    fake.let_pass(1)
    for _ in range(2):
        with pytest.raises(TimerError, match="cuEventCreate failed"):
            timer.poll()
    fake.break_events(False)
    assert timer.poll() == 1
    assert samples_of(timer)[0].gpu_gap_us is None


def test_a_failed_look_does_not_hide_the_exception_of_the_block(
    starved: tuple[FakeDriver, _runtime.RegionTimer],
) -> None:
    fake, timer = starved
    looked = fake.calls("cuEventCreate")

    def fails() -> None:
        with timer.region("r"):
            fake.work(1)
            fake.let_pass(1)
            raise KeyError

    for _ in range(100):
        with pytest.raises(KeyError):
            fails()
    assert fake.calls("cuEventCreate") > looked
    fake.break_events(False)
    assert timer.poll() > 0
    assert timer.counts()["lost"] == 0
