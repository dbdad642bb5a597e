"""Calls a function before chosen lines of a program, in the thread that runs them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import Any

from syncfree.errors import DetectorError

Place = tuple[str, int]  # file and line


class BeforeLines:
    """While active, `call` is called with a place right before that place runs.

    From Python 3.12 on this uses `sys.monitoring`, which costs nothing on all other lines. Older
    versions need a trace function, which meanwhile replaces that of a debugger or a coverage tool.

    Args:
        places: Files, as code objects name them, and lines.
        call: Gets the place, in the thread that runs it.

    Example:
        >>> from syncfree.detector.line_hooks import BeforeLines
        >>> with BeforeLines([("train.py", 7)], print):
        ...     pass
    """

    def __init__(self, places: Iterable[Place], call: Callable[[Place], None]) -> None:
        self._places = frozenset(places)
        self._files = frozenset(file for file, _ in self._places)
        self._call = call
        self._inside = threading.local()

    def __enter__(self) -> BeforeLines:
        if sys.version_info >= (3, 12):
            self._monitor()
        else:
            self._former = sys.gettrace(), threading.gettrace()
            threading.settrace(self._on_call)
            sys.settrace(self._on_call)
        return self

    def __exit__(self, *_: Any) -> None:
        if sys.version_info >= (3, 12):
            monitoring = sys.monitoring
            monitoring.set_events(self._tool, monitoring.events.NO_EVENTS)
            monitoring.register_callback(self._tool, monitoring.events.LINE, None)
            monitoring.free_tool_id(self._tool)
        else:
            sys.settrace(self._former[0])
            threading.settrace(self._former[1])

    def _monitor(self) -> None:
        if sys.version_info >= (3, 12):
            monitoring = sys.monitoring
            free = [number for number in (4, 3, 5, 2) if monitoring.get_tool(number) is None]
            if not free:
                raise DetectorError("all places of sys.monitoring are taken by other tools")
            self._tool = free[0]
            monitoring.use_tool_id(self._tool, "syncfree")
            monitoring.register_callback(self._tool, monitoring.events.LINE, self._on_line)
            monitoring.set_events(self._tool, monitoring.events.LINE)
            monitoring.restart_events()

    def _on_line(self, code: CodeType, line: int) -> Any:
        if (code.co_filename, line) in self._places:
            self._tell((code.co_filename, line))
        elif sys.version_info >= (3, 12):
            return sys.monitoring.DISABLE
        return None

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._on_event if frame.f_code.co_filename in self._files else None

    def _on_event(self, frame: FrameType, event: str, argument: Any) -> Any:
        place = frame.f_code.co_filename, frame.f_lineno
        if event == "line" and place in self._places:
            self._tell(place)
        return self._on_event

    def _tell(self, place: Place) -> None:
        if getattr(self._inside, "call", False):
            return
        self._inside.call = True
        try:
            self._call(place)
        finally:
            self._inside.call = False
