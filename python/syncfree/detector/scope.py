"""Values that hold for a block of code, and for the asyncio tasks and threads that it starts."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any, Generic, TypeVar

from syncfree.detector.patching import Patch

T = TypeVar("T")

# Tasks inherit context variables and threads do not: this is the context that each was started in.
_started_in: weakref.WeakKeyDictionary[threading.Thread, Context] = weakref.WeakKeyDictionary()
# The same by native thread id. Threads that have ended stay in it.
_started_by_number: dict[int, Context] = {}
_all: list[Scoped[Any]] = []


class Scoped(Generic[T]):
    """A context variable that threads inherit too, while `ThreadsInherit` is active."""

    def __init__(self, name: str, default: T) -> None:
        self._variable: ContextVar[T] = ContextVar(name)
        self._default = default
        _all.append(self)

    def get(self) -> T:
        """The value in the calling code."""
        try:
            return self._variable.get()
        except LookupError:
            context = _started_in.get(threading.current_thread())
            return self._default if context is None else self._of(context)

    def set(self, value: T) -> None:
        """Replaces the value for the rest of this context."""
        self._variable.set(value)

    def put_into(self, context: Context, value: T) -> None:
        """Sets the value in a context, so that `get` inside of it ignores the thread's own."""
        context.run(self._variable.set, value)

    @property
    def default(self) -> T:
        """The value where none was set."""
        return self._default

    def _of(self, context: Context) -> T:
        return context.get(self._variable, self._default)


class ThreadsInherit:
    """While active, a thread inherits the scope of the code that starts it."""

    def __init__(self) -> None:
        self._patch = Patch(threading.Thread, "start", self._make)

    def __enter__(self) -> ThreadsInherit:
        self._patch.install()
        return self

    def __exit__(self, *_: Any) -> None:
        self._patch.remove()
        _started_by_number.clear()

    @staticmethod
    def _make(original: Callable[..., None]) -> Callable[..., None]:
        def start(thread: threading.Thread) -> None:
            context = _merged(_started_in.get(threading.current_thread()))
            _started_in[thread] = context
            original(thread)
            if thread.native_id is not None:
                _started_by_number[thread.native_id] = context

        return start


def _merged(parent: Context | None) -> Context:
    """The current context, with the values that this thread inherited and did not replace."""
    context = copy_context()
    for variable, value in (parent or {}).items():
        if variable not in context:
            context.run(variable.set, value)
    return context


def scope_here() -> Context:
    """A context with the values that hold here, for use in another thread later."""
    context = copy_context()
    for each in _all:
        each.put_into(context, each.get())
    return context


def outside() -> Context:
    """A context in which no value is set."""
    context = Context()
    for each in _all:
        each.put_into(context, each.default)
    return context


def scope_of_thread(number: int) -> Context | None:
    """The scope that a thread inherited, by its native id; None if its start was not seen."""
    context = _started_by_number.get(number)
    if context is None:
        started = list(_started_in.items())
        context = next((each for thread, each in started if thread.native_id == number), None)
    if context is None:
        return None
    complete = outside()
    for variable, value in context.items():
        complete.run(variable.set, value)
    return complete
