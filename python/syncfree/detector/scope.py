"""Values that hold for a block of code: in its asyncio tasks, and in threads that it starts."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any, Generic, TypeVar

from syncfree.detector.patching import Patch

T = TypeVar("T")

# Context variables reach tasks but not threads: a thread keeps the context that it was started in.
_started_in: weakref.WeakKeyDictionary[threading.Thread, Context] = weakref.WeakKeyDictionary()


class Scoped(Generic[T]):
    """A context variable whose value reaches threads too, while `ThreadsInherit` is active."""

    def __init__(self, name: str, default: T) -> None:
        self._variable: ContextVar[T] = ContextVar(name)
        self._default = default

    def get(self) -> T:
        """The value here."""
        try:
            return self._variable.get()
        except LookupError:
            context = _started_in.get(threading.current_thread())
            return self._default if context is None else self._of(context)

    def set(self, value: T) -> None:
        """Replaces the value for the rest of this context."""
        self._variable.set(value)

    def _of(self, context: Context) -> T:
        return context.get(self._variable, self._default)


class ThreadsInherit:
    """While active, a thread takes over the scope of the code that starts it."""

    def __init__(self) -> None:
        self._patch = Patch(threading.Thread, "start", self._make)

    def __enter__(self) -> ThreadsInherit:
        self._patch.install()
        return self

    def __exit__(self, *_: Any) -> None:
        self._patch.remove()

    @staticmethod
    def _make(original: Callable[..., None]) -> Callable[..., None]:
        def start(thread: threading.Thread) -> None:
            _started_in[thread] = _merged(_started_in.get(threading.current_thread()))
            original(thread)

        return start


def _merged(parent: Context | None) -> Context:
    """The present context, with what this thread itself inherited and did not set anew."""
    context = copy_context()
    for variable, value in (parent or {}).items():
        if variable not in context:
            context.run(variable.set, value)
    return context
