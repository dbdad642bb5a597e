"""Threads that a program leaves running: they are waited for, as the interpreter does."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from syncfree.cli.syncs.iterations import EndOfRunError
from syncfree.detector.patching import Patch

# Interval at which a wait for threads checks whether one of them has ended the run.
_LOOK_SECONDS = 0.1
# A module, its flag for the interpreter's exit, its map of what workers wait for, how to wake one.
_POOLS: tuple[tuple[str, str, str, Callable[[Any], None]], ...] = (
    ("concurrent.futures.thread", "_shutdown", "_threads_queues", lambda queue: queue.put(None)),
    ("concurrent.futures.process", "_global_shutdown", "_threads_wakeups", lambda it: it.wakeup()),
)


class Threads:
    """The threads that a program starts, for which the interpreter waits after its main thread."""

    def __init__(self) -> None:
        self._before = set(threading.enumerate())
        self._main_ended = threading.Event()
        self._run_ended = False

    def wait(self) -> None:
        """Waits for all but the daemons, or until one of them ends the run."""
        self._main_ended.set()
        with self._pools_ended():
            while not self._run_ended and (left := self._left()):
                left[0].join(_LOOK_SECONDS)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Inside, a thread may end the run, and sees the main thread end with the program."""
        hook = Patch(threading, "excepthook", self._make_hook)
        hook.install()
        try:
            with self._main_thread_that_ends():
                yield
        finally:
            hook.remove()

    def _make_hook(self, original: Callable[[Any], None]) -> Callable[[Any], None]:
        def excepthook(details: Any) -> None:
            if details.exc_type is EndOfRunError:
                self._run_ended = True
            else:
                original(details)

        return excepthook

    def _left(self) -> list[threading.Thread]:
        own = {*self._before, threading.current_thread()}
        return [each for each in threading.enumerate() if not each.daemon and each not in own]

    @contextmanager
    def _pools_ended(self) -> Iterator[None]:
        """Inside, workers of pools that nobody has shut down end when their work is done."""
        pools = [(sys.modules[each[0]], *each[1:]) for each in _POOLS if each[0] in sys.modules]
        for module, flag, waiting, wake in pools:
            setattr(module, flag, True)
            for thread, sleeps_at in list(getattr(module, waiting).items()):
                if thread not in self._before:
                    wake(sleeps_at)
        try:
            yield
        finally:
            for module, flag, *_ in pools:
                setattr(module, flag, False)

    @contextmanager
    def _main_thread_that_ends(self) -> Iterator[None]:
        """Makes the main thread, which goes on here, look ended: some threads run until it has."""
        main, process = threading.main_thread(), os.getpid()

        def is_alive() -> bool:
            return threading.Thread.is_alive(main) and not self._main_ended.is_set()

        def join(timeout: float | None = None) -> None:
            if threading.current_thread() is main or os.getpid() != process:
                threading.Thread.join(main, timeout)
            else:
                self._main_ended.wait(timeout)

        vars(main).update(is_alive=is_alive, join=join)
        try:
            yield
        finally:
            self._main_ended.set()
            del main.is_alive, main.join
