"""Remembers where metrics were called, for errors that are read after the call's frames are gone.

A call has a number. Its place is the code object and instruction in user code that made it.
"""

from __future__ import annotations

import itertools
import os
import sys
import warnings
from pathlib import Path
from types import CodeType, FrameType
from typing import Protocol

# Frames in these packages are not user code.
_PACKAGES = ("syncfree", "torch", "torchmetrics")
_MOST_FILES = 4096  # each cell of a notebook counts as a file

_is_inside: dict[str, bool] = {}


class CallPlaces(Protocol):
    """The places of the latest calls, by number."""

    def note(self, bits: int, /) -> int:
        """Numbers this call, remembers its place and returns ``bits`` with the number added."""

    def find(self, number: int, /) -> tuple[CodeType, int] | None:
        """The code object and instruction of a call; None once later calls have replaced it."""


class FramePlaces:
    """For Python versions whose frame layout csrc/runtime/python_stack.cpp does not know.

    Slower: `sys._getframe` raises an audit event, which a hook of filelock (imported by torch)
    handles in Python.
    """

    _KEPT = 4096  # a power of two

    def __init__(self, number_shift: int) -> None:
        self._number_shift = number_shift
        self._next = itertools.count(1).__next__
        self._kept: list[tuple[int, CodeType, int] | None] = [None] * self._KEPT

    def note(self, bits: int, /) -> int:
        number = self._next()
        frame = frame_outside(sys._getframe(1))
        # Not the line: finding it takes longer than everything else here.
        self._kept[number & self._KEPT - 1] = number, frame.f_code, frame.f_lasti
        return bits | number << self._number_shift

    def find(self, number: int, /) -> tuple[CodeType, int] | None:
        place = self._kept[number & self._KEPT - 1]
        return None if place is None or place[0] != number else place[1:]


def warn_at_call(message: str) -> None:
    """Issues a UserWarning at the calling line of user code; by default shown once per line."""
    frame = frame_outside(sys._getframe(1))
    warnings.warn_explicit(
        message,
        UserWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=frame.f_globals.get("__name__"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def call_places(number_shift: int) -> CallPlaces:
    """The `CallPlaces` for this Python; numbers take the bits from ``number_shift`` upward."""
    try:
        from syncfree import _runtime
    except ImportError:  # built for another Python; the ops do without it
        return FramePlaces(number_shift)
    if not _runtime.can_walk_python_stack():
        return FramePlaces(number_shift)
    return _runtime.CallPlaces(_is_inside, is_inside, number_shift)


def frame_outside(frame: FrameType) -> FrameType:
    """The first frame outside of the packages, or the outermost one."""
    while is_inside(frame.f_code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def is_inside(file: str) -> bool:
    """Whether a file is one of the packages'."""
    inside = _is_inside.get(file)  # looked up once: another thread may clear the dict
    if inside is None:
        if len(_is_inside) > _MOST_FILES:
            _is_inside.clear()
        modules = map(sys.modules.get, _PACKAGES)
        files = [getattr(module, "__file__", None) for module in modules]
        folders = [str(Path(each).parent) + os.sep for each in files if each is not None]
        inside = _is_inside[file] = file.startswith(tuple(folders))
    return inside


def line_of(code: CodeType, instruction: int) -> int:
    """The line of code that holds an instruction."""
    for begin, end, line in code.co_lines():
        if begin <= instruction < end and line is not None:
            return line
    return code.co_firstlineno
