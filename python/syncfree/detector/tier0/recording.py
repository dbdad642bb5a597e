"""What a tier in use knows: who listens, and what the running thread is in the middle of."""

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
    # Inside of torch.save: whether a copy to the host came before.
    saved: bool | None = None


class _Device:
    # Things done with it so far, in all threads: only whether they become more is asked.
    seen = 0


thread = _Thread()
device = _Device()


def listen(recorder: Recorder) -> None:
    """Adds a recorder; each gets all events."""
    _recorders.append(recorder)


def leave(recorder: Recorder) -> None:
    """Takes a recorder out again."""
    _recorders[:] = [each for each in _recorders if each is not recorder]


def see() -> None:
    """Something was done with the virtual device or a tensor of it."""
    device.seen += 1


def listening() -> bool:
    """Whether a tier is in use and what this thread does counts."""
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
    """Hands an event to the recorders, before the wait: they may raise to prevent it."""
    if not listening():
        return
    see()
    operators, forward_here = operators_here()
    # A copy to another device is a function of ours here, and would be an operator of torch there.
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
    """What happens inside is part of something already recorded, or would not happen on a GPU."""
    thread.quiet += 1
    try:
        yield
    finally:
        thread.quiet -= 1


@contextmanager
def in_factory() -> Iterator[None]:
    """Tensors made inside have the device that the caller named: none is open."""
    thread.factory += 1
    try:
        yield
    finally:
        thread.factory -= 1


@contextmanager
def in_script() -> Iterator[None]:
    """Code of TorchScript that was given tensors of the device runs inside."""
    thread.scripted += 1
    try:
        yield
    finally:
        thread.scripted -= 1
