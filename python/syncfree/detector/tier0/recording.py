"""The state of tier 0 while it is in use: its recorders, and what each thread is executing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from syncfree.detector.findings import Event, Frame, Recorder, Verdict
from syncfree.detector.operators import operators_here
from syncfree.detector.stack import COPIERS, READERS, reader_here, stack_here

_recorders: list[Recorder] = []


class _Thread(threading.local):
    quiet = 0
    factory = 0
    scripted = 0
    # Inside of torch.save: whether it has copied a tensor to the host already.
    saved: bool | None = None


class _Device:
    # Operations on the device so far, in all threads. It need not be exact: it is only asked
    # whether it grew.
    seen = 0


thread = _Thread()
device = _Device()


def listen(recorder: Recorder) -> None:
    """Adds a recorder; each gets all events."""
    _recorders.append(recorder)


def leave(recorder: Recorder) -> None:
    """Removes a recorder."""
    _recorders[:] = [each for each in _recorders if each is not recorder]


def see() -> None:
    """Counts a use of the virtual device or of a tensor on it."""
    device.seen += 1


def listening() -> bool:
    """Whether a tier is in use and this thread is not quiet."""
    return bool(_recorders) and not thread.quiet


def record(
    api: str,
    why: str,
    verdict: Verdict = Verdict.SYNC,
    *,
    direction: str | None = None,
    size: int | None = None,
    host_memory: str | None = None,
    op: str | None = None,
    forward: Frame | None = None,
    one_time: bool = False,
) -> None:
    """Passes an event to the recorders before the wait, which they may prevent by raising."""
    if not listening():
        return
    see()
    operators, forward_here = operators_here()
    # `_Crossing` replaces the operator of torch that copies to another device.
    operators = tuple(name for name in operators if not name.startswith("_Crossing"))
    event = Event(
        api,
        verdict,
        why,
        stack_here(),
        direction=direction,
        bytes=size,
        host_memory=host_memory,
        op_stack=operators or ((op,) if op else ()),
        forward=forward or forward_here,
        one_time=one_time,
        reader=reader_here(COPIERS if direction == "h2d" else READERS),
    )
    for recorder in tuple(_recorders):
        recorder.record(event)


@contextmanager
def quiet() -> Iterator[None]:
    """Records nothing inside: it belongs to a recorded event, or would not happen on a GPU."""
    thread.quiet += 1
    try:
        yield
    finally:
        thread.quiet -= 1


@contextmanager
def in_factory() -> Iterator[None]:
    """Inside, new tensors have the device that the caller named, so none becomes `Place.OPEN`."""
    thread.factory += 1
    try:
        yield
    finally:
        thread.factory -= 1


@contextmanager
def in_script() -> Iterator[None]:
    """Around TorchScript code that was called with tensors of the virtual device."""
    thread.scripted += 1
    try:
        yield
    finally:
        thread.scripted -= 1
