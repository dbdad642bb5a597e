"""A clock stamp that is recorded again while its last one is under way, without a GPU."""

from __future__ import annotations

import pytest

from fake_driver import FakeDriver
from syncfree import _runtime
from syncfree.errors import TimerError

BUSY, IDLE = 0x55, 0x66


def recorded_twice(fake: FakeDriver) -> _runtime.ClockStamp:
    """First behind work of 1 ms, and then on a stream without any."""
    fake.work(1000, BUSY)
    stamp = _runtime.ClockStamp()
    stamp.record(BUSY)
    stamp.record(IDLE)
    return stamp


def test_an_older_stamp_does_not_replace_a_newer_one(fake: FakeDriver) -> None:
    now = fake.now()
    stamp = recorded_twice(fake)
    assert stamp.ready()
    fake.let_pass(2000)  # the older one arrives
    assert stamp.ready()
    assert stamp.read()[0] == now


def test_only_the_newer_stamp_is_waited_for(fake: FakeDriver) -> None:
    fake.work(100, IDLE)
    now = fake.now()
    stamp = recorded_twice(fake)
    assert not stamp.ready()
    fake.let_pass(100)
    assert stamp.ready()
    assert stamp.read()[0] == now + 100_000


def test_an_older_stamp_does_not_meet_the_next_owner_of_its_place(fake: FakeDriver) -> None:
    assert recorded_twice(fake).ready()  # and gone
    now = fake.now()
    others = [_runtime.ClockStamp() for _ in range(300)]
    for each in others:
        each.record(IDLE)
    fake.let_pass(2000)
    assert all(each.ready() for each in others)
    assert {each.read()[0] for each in others} == {now}


def test_places_of_stamps_serve_again(fake: FakeDriver) -> None:
    made = fake.calls("cuMemHostAlloc")
    for _ in range(1000):
        stamp = recorded_twice(fake)
        fake.let_pass(1000)
        assert stamp.ready()
    assert fake.calls("cuMemHostAlloc") <= made + 1


def test_a_stamp_that_cannot_be_recorded(fake: FakeDriver) -> None:
    stamp = _runtime.ClockStamp()
    stamp.record(IDLE)
    fake.begin_capture(IDLE)
    with pytest.raises(TimerError, match="cuLaunchKernel failed"):
        stamp.record(IDLE)
    assert not stamp.ready()
    fake.end_capture(IDLE)
    stamp.record(IDLE)
    assert stamp.ready()
