"""NVTX ranges around regions that fail, and around regions that nobody ends."""

from __future__ import annotations

import pytest

from fake_driver import FakeDriver
from syncfree import _runtime


class Ranges:
    """A stack of ranges, whose ``pop`` raises `error` if there is one."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.error: BaseException | None = None

    def pop(self) -> None:
        self.open.pop()
        if self.error is not None:
            raise self.error


def timer_with(fake: FakeDriver | None, ranges: Ranges) -> _runtime.RegionTimer:
    options = {"push_range": ranges.open.append, "pop_range": ranges.pop}
    return _runtime.RegionTimer(**options) if fake is None else fake.timer(**options)


@pytest.mark.parametrize("on_gpu", [True, False])
def test_a_range_that_fails_does_not_hide_the_exception_of_the_block(
    fake: FakeDriver, on_gpu: bool
) -> None:
    ranges = Ranges()
    timer = timer_with(fake if on_gpu else None, ranges)
    ranges.error = OSError("no range")

    def fails() -> None:
        with timer.region("r"):
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    with pytest.raises(OSError, match="no range"), timer.region("r"):
        pass
    counts = timer.counts()
    assert (counts["lost"], counts["problem"]) == (2, "an NVTX range could not be ended")
    assert ranges.open == []


def test_an_interrupt_is_not_kept_back() -> None:
    ranges = Ranges()
    timer = timer_with(None, ranges)
    ranges.error = KeyboardInterrupt()

    def fails() -> None:
        with timer.region("r"):
            raise KeyError

    with pytest.raises(KeyboardInterrupt):
        fails()


def test_an_error_about_the_region_does_not_hide_the_exception_of_the_block() -> None:
    timer = _runtime.RegionTimer()

    def fails() -> None:
        with timer.region("r") as region:
            region.stop()
            raise KeyError

    with pytest.raises(KeyError):
        fails()


@pytest.mark.parametrize("on_gpu", [True, False])
def test_the_range_of_a_forgotten_region_ends(fake: FakeDriver, on_gpu: bool) -> None:
    ranges = Ranges()
    timer = timer_with(fake if on_gpu else None, ranges)
    with timer.region("around"):
        timer.region("forgotten").start()
        assert ranges.open == ["around"]
    timer.region("never begun")
    assert ranges.open == []
    assert timer.counts()["lost"] == 1


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_forgotten_region_leaves_an_exception_that_is_on_its_way() -> None:
    ranges = Ranges()
    timer = timer_with(None, ranges)

    def fails() -> None:
        region = timer.region("forgotten").start()
        assert region.name == ranges.open[-1]
        raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert ranges.open == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_range_of_a_forgotten_region_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[BaseException | None] = []
    monkeypatch.setattr("sys.unraisablehook", lambda each: told.append(each.exc_value))
    ranges = Ranges()
    timer = timer_with(None, ranges)
    ranges.error = OSError("no range")
    timer.region("forgotten").start()
    assert told == [ranges.error]
