"""Regions: what they count, where they reach, and that they leave nothing behind."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import detector_stub
import syncfree
from detector_stub import wait
from syncfree.detector import Verdict
from syncfree.errors import DetectorError, SyncError, SyncWarning

pytestmark = pytest.mark.usefixtures("stub")
HERE = __file__


def line_of(text: str) -> int:
    lines = Path(HERE).read_text(encoding="utf-8").splitlines()
    return next(n for n, line in enumerate(lines, 1) if text in line)


def wait_times(times: int) -> None:
    for _ in range(times):
        wait()


# What a region counts


def test_a_wait_is_found_with_its_line() -> None:
    with syncfree.detect_syncs() as report:
        for _ in range(3):
            wait()  # found here
    (found,) = report.findings
    assert (found.file, found.line) == (HERE, line_of("# found here"))
    assert found.function.endswith("test_a_wait_is_found_with_its_line")
    assert found.source == "wait()  # found here"
    assert (found.count, report.count, report.tier) == (3, 3, 0)
    assert report.seconds > 0


def test_the_outermost_pytest_frames_are_left_out() -> None:
    with syncfree.detect_syncs() as report:
        wait()
    assert {frame.file for frame in report.findings[0].event.stack} == {HERE}


def test_nothing_counts_outside() -> None:
    wait()
    with syncfree.detect_syncs() as report:
        pass
    wait()
    assert report.findings == []


def test_conditional_waits_are_shown_and_not_counted() -> None:
    with syncfree.detect_syncs("raise") as report:
        wait("cuMemFree", verdict=Verdict.CONDITIONAL)
    assert (len(report.findings), report.count) == (1, 0)


def test_an_inner_region_counts_to_the_outer_one() -> None:
    with syncfree.detect_syncs() as outer:
        wait()
        with syncfree.detect_syncs() as inner:
            wait()
        wait()
    assert (inner.count, outer.count) == (1, 3)


def test_a_region_can_be_entered_again() -> None:
    region = syncfree.detect_syncs()
    with region as first:
        wait()
        with pytest.raises(DetectorError, match="open already"):
            region.__enter__()
    with region as second:
        pass
    assert (first.count, second.count) == (1, 0)


# Modes


def test_raise_at_the_end() -> None:
    went_on = []

    def body() -> None:
        wait()  # the guilty one
        went_on.append(True)

    expected = pytest.raises(SyncError, match=r"at most 0 allowed.*1 time at 1 line")
    with expected as caught, syncfree.detect_syncs("raise"):
        body()
    assert went_on
    assert f"{HERE}:{line_of('# the guilty one')}" in str(caught.value)
    assert caught.value.report.count == 1


def test_max_syncs_are_accepted() -> None:
    with syncfree.detect_syncs("raise", max_syncs=2):
        wait()
        wait()
    with pytest.raises(SyncError), syncfree.detect_syncs("raise", max_syncs=2):
        wait_times(3)


def test_warn_points_at_the_guilty_line() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with syncfree.detect_syncs("warn"):
            wait()  # warned of
    (warning,) = caught
    assert warning.category is SyncWarning
    assert (warning.filename, warning.lineno) == (HERE, line_of("# warned of"))


def test_raise_at_the_call_without_a_gpu() -> None:
    reached = []

    def body() -> None:
        for n in range(3):
            wait()
            reached.append(n)

    with pytest.raises(SyncError), syncfree.detect_syncs("raise", raise_at="call", max_syncs=1):
        body()
    assert reached == [0]


def test_raise_at_the_call_that_the_program_swallows() -> None:
    def body() -> None:
        with pytest.raises(SyncError):
            wait()

    with pytest.raises(SyncError), syncfree.detect_syncs("raise", raise_at="call"):
        body()


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_exceptions_pass_through(kind: type[BaseException]) -> None:
    error = kind("its own")

    def body() -> None:
        wait()
        raise error

    with pytest.raises(kind) as caught, syncfree.detect_syncs("raise"):
        body()
    assert caught.value is error
    assert error.__context__ is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "log"}, "mode is one of 'record', 'warn', 'raise', but got 'log'"),
        ({"max_syncs": -1}, "max_syncs is a count of at least 0, but got -1"),
        ({"max_syncs": True}, "max_syncs is a count"),
        ({"tier": 1}, "tier is one of 'auto', 0, 2, 3, but got 1"),
        ({"tier": False}, "tier is one of"),
        ({"raise_at": "once"}, "raise_at is one of"),
        ({"raise_at": "call"}, "raise_at='call' needs mode='raise'"),
        ({"raise_at": "call", "mode": "raise", "tier": 3}, "needs tier 2 or 0"),
        ({"threads": "some"}, "threads is one of"),
    ],
)
def test_wrong_arguments(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        syncfree.detect_syncs(**arguments)


def test_another_tier_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    with syncfree.detect_syncs(tier=0):
        with syncfree.detect_syncs(tier="auto"):
            pass
        with pytest.raises(DetectorError, match="tier 2 was asked for inside of a region"):
            syncfree.detect_syncs(tier=2).__enter__()


# Tier 2's way to raise


def test_a_refused_wait_becomes_a_sync_error(monkeypatch: pytest.MonkeyPatch) -> None:
    detector_stub.install(monkeypatch, 2)
    with pytest.raises(SyncError) as caught, syncfree.detect_syncs("raise", raise_at="call"):
        wait()
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert caught.value.report.count == 1


def test_nothing_is_refused_where_it_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    detector_stub.install(monkeypatch, 2)
    with syncfree.detect_syncs("raise", raise_at="call") as report:
        with syncfree.allow_sync("meant"):
            wait()
        with pytest.raises(RuntimeError, match="would wait"):
            wait()
        with syncfree.detect_syncs("raise", raise_at="call"), syncfree.allow_sync("both"):
            wait()
    assert report.allowed == {"meant": 1, "both": 1}


def test_with_a_gpu_a_call_raises_at_the_first_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    detector_stub.install(monkeypatch, 2)
    with pytest.raises(ValueError, match="max_syncs must be 0, but it is 1"):
        syncfree.detect_syncs("raise", raise_at="call", max_syncs=1).__enter__()


def test_a_tier_that_cannot_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    detector_stub.install(monkeypatch, 3)
    inner = syncfree.detect_syncs("raise", raise_at="call")
    with syncfree.detect_syncs(), pytest.raises(DetectorError, match="the outer region tier=2"):
        inner.__enter__()
