"""Counts the iterations of a program: warm-up, and the end of the run."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from syncfree.cli.syncs.program import ProgramError
from syncfree.detector.callables import kind_of_call

# A program whose time is up may finish the iteration that it is in, but not for longer than this.
_GRACE_SECONDS = 5.0


class EndOfRunError(BaseException):
    """Ends the program; not an Exception, which programs catch."""


class Iterations:
    """Ends the warm-up, and the run, at the end of an iteration.

    Args:
        warmup: Iterations before `begin` is called.
        steps: Iterations after that, until the run ends; None for all.
        seconds: After which the run ends; None for never.
        begin: Called once, at the end of the warm-up.
    """

    def __init__(
        self, warmup: int, steps: int | None, seconds: float | None, begin: Callable[[], None]
    ) -> None:
        self._warmup = warmup
        self._steps = steps
        self._seconds = seconds
        self._begin = begin
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._deadline = float("inf")
        self.done = 0
        self.ran_out_of_time = False

    @property
    def judged(self) -> int:
        """Iterations since the end of the warm-up."""
        return max(0, self.done - self._warmup)

    def end_one(self) -> None:
        """An iteration has ended.

        Raises:
            EndOfRunError: It was the last one.
        """
        if os.getpid() != self._process:
            return  # a forked child has iterations of its own
        with self._lock:
            self.done += 1
            done = self.done
        if done == self._warmup:
            self._begin()
        if self._steps is not None and done >= self._warmup + self._steps:
            raise EndOfRunError
        if time.monotonic() >= self._deadline:
            self.ran_out_of_time = True
            raise EndOfRunError

    def wrap(self, function: Any) -> Any:
        """Wraps a function, or a static or class method, so that each call is an iteration.

        Raises:
            ProgramError: It is an asynchronous generator.
        """
        if isinstance(function, (staticmethod, classmethod)):
            return type(function)(self.wrap(function.__func__))
        kind = kind_of_call(function)
        if kind == "asynchronous generator":
            raise ProgramError(
                f"--step-function: {getattr(function, '__qualname__', function)} is an "
                "asynchronous generator, a call of which ends before its body runs; name a "
                "function, a coroutine function or a generator that each iteration calls"
            )
        if kind == "generator":

            @functools.wraps(function)
            def step(*args: Any, **kwargs: Any) -> Any:
                result = yield from function(*args, **kwargs)
                self.end_one()
                return result

        elif kind == "coroutine":

            @functools.wraps(function)
            async def step(*args: Any, **kwargs: Any) -> Any:
                result = await function(*args, **kwargs)
                self.end_one()
                return result

        else:

            @functools.wraps(function)
            def step(*args: Any, **kwargs: Any) -> Any:
                result = function(*args, **kwargs)
                self.end_one()
                return result

        return step

    @contextmanager
    def at_optimizer_steps(self) -> Iterator[None]:
        """Inside, each `optimizer.step()` ends an iteration."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        handle = register_optimizer_step_post_hook(lambda *_: self.end_one())
        try:
            yield
        finally:
            handle.remove()

    @contextmanager
    def within_time(self) -> Iterator[None]:
        """Inside, the run ends when its time is up: with an iteration, or after a grace period."""
        in_main_thread = threading.current_thread() is threading.main_thread()
        if self._seconds is None or not in_main_thread:
            yield
            return
        self._deadline = time.monotonic() + self._seconds

        def time_is_up(*_: Any) -> None:
            if self.done and time.monotonic() < self._deadline + _GRACE_SECONDS:
                signal.setitimer(signal.ITIMER_REAL, _GRACE_SECONDS)
                return
            self.ran_out_of_time = True
            raise EndOfRunError

        former = signal.signal(signal.SIGALRM, time_is_up)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, former)
