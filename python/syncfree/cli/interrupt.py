"""Ctrl-C as a request, handled at a moment that the program chooses."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Whether Ctrl-C was pressed."""

    requested = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed."""
        if self.requested:
            raise KeyboardInterrupt


@contextmanager
def deferred_interrupt() -> Iterator[Interrupt]:
    """Turn the first Ctrl-C into a request inside the `with` block; a second one acts at once.

    Python raises KeyboardInterrupt anywhere, also between two lines of `threading.Condition`, where
    it turns into a RuntimeError or leaves a lock held forever: code that waits for threads is
    safe only if nothing is raised there. Outside the main thread, and where Ctrl-C is ignored or
    handled by somebody else, nothing changes.

    Example:
        >>> from syncfree.cli.interrupt import deferred_interrupt
        >>> with deferred_interrupt() as interrupt:
        ...     for _ in range(3):
        ...         interrupt.check()
    """
    interrupt = Interrupt()
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield interrupt
        return

    def request(number: int, frame: FrameType | None) -> None:
        interrupt.requested = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, request)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
