"""Which scope a logged call belongs to, although another thread reads the log later."""

from __future__ import annotations

import asyncio.events
import threading
from collections.abc import Callable
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syncfree.detector.findings import Frame
from syncfree.detector.patching import Patch
from syncfree.detector.scope import outside, scope_here, scope_of_thread
from syncfree.detector.stack import stack_here

if TYPE_CHECKING:
    from collections.abc import Iterator

# Names of threads on which autograd runs the operations of a device begin like this.
AUTOGRAD = "pt_autograd_"


@dataclass(frozen=True)
class BackwardPass:
    """A backward pass that is running; the stack is its caller's, as its threads have none."""

    scope: Context
    stack: tuple[Frame, ...]


class Scopes:
    """The scope of each thread, kept up to date while a tier listens.

    All calls that a thread logged since its last change of scope belong to one scope. So the log is
    read before a scope changes: where a region or an `allow_sync` begins or ends, where an event
    loop switches between tasks, and where a backward pass ends.

    Args:
        read: Reads what was logged so far.
        mark: Puts a mark; called in a thread of the program, where calls of CUDA are possible.
    """

    def __init__(self, read: Callable[[], None], mark: Callable[[], None]) -> None:
        import torch.autograd.graph

        self._read = read
        self._mark = mark
        self._lock = threading.Lock()
        self._noted: dict[int, Context] = {}
        self._passes: list[BackwardPass] = []
        self._patches = [
            Patch(asyncio.events.Handle, "_run", self._step_of_task),
            Patch(torch.autograd, "_engine_run_backward", self._backward),
            Patch(torch.autograd.graph, "_engine_run_backward", self._backward),
        ]

    def __enter__(self) -> Scopes:
        self.note()
        for patch in self._patches:
            patch.install()
        return self

    def __exit__(self, *_: Any) -> None:
        for patch in self._patches:
            patch.remove()

    def note(self) -> None:
        """Notes the scope of the caller as that of the calling thread from here on."""
        self._noted[threading.get_native_id()] = scope_here()

    def of(self, thread: int, name: str) -> tuple[Context, tuple[Frame, ...]]:
        """The scope of a thread, and the frames of another thread that led to what it does.

        With several backward passes at once, it is unknown whose call it is: the first is taken.
        """
        if name.startswith(AUTOGRAD):
            with self._lock:
                if self._passes:
                    return self._passes[0].scope, self._passes[0].stack
        return self._noted.get(thread) or scope_of_thread(thread) or outside(), ()

    def _step_of_task(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(handle: Any) -> Any:
            self._read()
            handle._context.run(self.note)
            try:
                return original(handle)
            finally:
                self._read()
                self.note()

        return run

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            with self._running(BackwardPass(scope_here(), stack_here())):
                return original(*args, **kwargs)

        return run

    @contextmanager
    def _running(self, one: BackwardPass) -> Iterator[None]:
        self._mark()
        with self._lock:
            self._passes.append(one)
        try:
            yield
        finally:
            self._read()
            with self._lock:
                self._passes.remove(one)
