"""What a program does once: it brings weights and data to the device before its loop begins."""

from __future__ import annotations

from types import CodeType, FrameType

# Calls that have been made before. They outlive regions: a region may be one step of a loop.
_calls: set[tuple[CodeType, int]] = set()


def is_first(frame: FrameType) -> bool:
    """Whether the call that a frame is in the middle of is made for the first time."""
    call = frame.f_code, frame.f_lasti
    known = call in _calls
    _calls.add(call)
    return not known


def begin() -> None:
    """A program begins: a script, or a test."""
    _calls.clear()
