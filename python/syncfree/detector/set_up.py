"""Tells a program's one-time setup, which copies weights and data to the GPU, from its loop."""

from __future__ import annotations

from types import CodeType, FrameType

# Places of calls (code, offset of the instruction) that were made before. They outlive regions,
# because a region may be one step of a loop.
_calls: set[tuple[CodeType, int]] = set()


def is_first(frame: FrameType) -> bool:
    """Whether the call that a frame is executing is made from that place for the first time."""
    call = frame.f_code, frame.f_lasti
    known = call in _calls
    _calls.add(call)
    return not known


def begin() -> None:
    """Forgets all calls: a new program begins, which is a script or a test."""
    _calls.clear()
