"""A tier without a GPU, torch or patches: a wait is what calls `wait`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from syncfree.detector import Event, Recorder, Verdict
from syncfree.detector import tiers as tiers_module
from syncfree.detector.stack import stack_here
from syncfree.detector.tiers import Tier

_active: list = []


class StubTier(Tier):
    """Counts its lives, so that a test sees whether it was left."""

    def __init__(self, recorder: Recorder, number: int = 0) -> None:
        self.recorder = recorder
        self.number = number
        self.raising = 0
        self.threads: list[int] = []  # entered, once for each region

    def enter_thread(self) -> None:
        self.threads.append(threading.get_ident())

    def leave_thread(self) -> None:
        self.threads.remove(threading.get_ident())

    def raise_at_call(self, on: bool) -> None:
        if self.number != 0:
            super().raise_at_call(on)

    def __enter__(self) -> StubTier:
        _active.append(self)
        self.enter_thread()
        return self

    def __exit__(self, *_: Any) -> None:
        _active.remove(self)
        self.leave_thread()
        assert not self.threads, "a thread was entered more often than left"


class RefusingTier(StubTier):
    """As tier 2: raises instead of waiting while it is told to."""

    def raise_at_call(self, on: bool) -> None:
        self.raising += 1 if on else -1

    def event_of_error(self, error: BaseException) -> Event | None:
        return make_event() if "would wait" in str(error) else None


def is_active() -> bool:
    return bool(_active)


def make_event(api: str = "Tensor.item", **fields: Any) -> Event:
    values = {"verdict": Verdict.SYNC, "why": "It reads a number.", "stack": stack_here()}
    return Event(api, **{**values, **fields})


def wait(api: str = "Tensor.item", **fields: Any) -> None:
    """Where a tier is active, the host waits at the line that calls this."""
    stack = stack_here()[1:] or stack_here()  # without this function
    for tier in _active:
        if tier.raising:
            raise RuntimeError("this would wait")
        tier.recorder.record(make_event(api, **{"stack": stack, **fields}))


def install(monkeypatch: pytest.MonkeyPatch, number: int = 0) -> None:
    """Every tier asked for is the stub."""
    kind = RefusingTier if number == 2 else StubTier
    monkeypatch.setattr(tiers_module, "has_gpu", lambda: number != 0)
    monkeypatch.setattr(tiers_module, "_made", lambda n, recorder: kind(recorder, number))


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For one test, after which nothing of the detector may be left."""
    install(monkeypatch)
    start = threading.Thread.start
    yield
    assert not is_active(), "a region was left open"
    assert threading.Thread.start is start, "a patch was left behind"
