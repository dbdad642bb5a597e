"""Waits that are intended: `allow_sync("reason")`, `# sync-ok: reason`, and lists of patterns."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from syncfree.detector.callables import kind_of_call
from syncfree.detector.findings import Event
from syncfree.detector.pragmas import pragma
from syncfree.detector.scope import Scoped
from syncfree.detector.session import drain, go_on_raising, scope_changed, stop_raising

F = TypeVar("F", bound=Callable[..., Any])
Pattern = str | Callable[[Event], bool]

_reasons: Scoped[tuple[str, ...]] = Scoped("syncfree_allowed", ())


class allow_sync:
    """Allows the waits inside of it: surrounding regions do not count them.

    A context manager, and a decorator for functions, coroutine functions, static and class methods.
    It costs a few microseconds if no region is open. It also covers asyncio tasks and, inside a
    region, threads that are started within it.

    Args:
        reason: Why the wait is intended; the report shows it.

    Raises:
        ValueError: The reason is empty.
        TypeError: The reason is not a string, as in ``@allow_sync`` without one, or a generator
            function is decorated.

    Example:
        >>> import syncfree
        >>> with syncfree.allow_sync("the learning rate schedule needs the loss, once an epoch"):
        ...     pass
    """

    def __init__(self, reason: str) -> None:
        self._reason = _checked(reason)
        self._stopped: list[int] = []

    def __enter__(self) -> None:
        drain()
        self._stopped.append(stop_raising())
        _reasons.set((*_reasons.get(), self._reason))
        scope_changed()

    def __exit__(self, *_: Any) -> None:
        drain()
        _reasons.set(_reasons.get()[:-1])
        scope_changed()
        go_on_raising(self._stopped.pop())

    def __call__(self, function: F) -> F:
        """Allows the waits of each call of a function."""
        if isinstance(function, (staticmethod, classmethod)):  # decorated above @staticmethod
            return type(function)(self(function.__func__))
        reason, kind = self._reason, kind_of_call(function)
        if "generator" in kind:
            raise TypeError(
                "allow_sync cannot decorate a generator, whose caller runs in between; write "
                "`with syncfree.allow_sync(reason):` inside of it, without a yield"
            )
        if kind == "coroutine":

            async def allowed(*args: Any, **kwargs: Any) -> Any:
                with allow_sync(reason):
                    return await function(*args, **kwargs)

        else:

            def allowed(*args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]
                with allow_sync(reason):
                    return function(*args, **kwargs)

        return functools.wraps(function)(allowed)  # type: ignore[return-value]


def _checked(reason: str) -> str:
    if not isinstance(reason, str):
        raise TypeError(
            f"allow_sync needs the reason as text, as in allow_sync('once an epoch'), but got "
            f"{type(reason).__name__}"
        )
    if not reason.strip():
        raise ValueError("allow_sync needs a reason: a report shows it beside the waits")
    return reason.strip()


def check_patterns(patterns: Sequence[Pattern]) -> tuple[Pattern, ...]:
    """The patterns of an ``allow=`` argument, as a tuple.

    Raises:
        TypeError: They are not a list of strings and functions.
    """
    if isinstance(patterns, str):
        raise TypeError(f"allow takes a list of patterns, so write allow=[{patterns!r}]")
    for pattern in patterns:
        if not isinstance(pattern, str) and not callable(pattern):
            raise TypeError(
                "allow takes texts and functions of an event, but got "
                f"{type(pattern).__name__}: {pattern!r}"
            )
    return tuple(patterns)


def reason_for(event: Event, patterns: Sequence[Pattern] = ()) -> str | None:
    """Why an event is allowed in the scope of the caller; None if it is not."""
    reasons = _reasons.get()
    if reasons:
        return reasons[-1]
    for frame in event.stack:
        reason = pragma(frame.file, frame.line)
        if reason is not None:
            return reason
    for pattern in patterns:
        if _matches(event, pattern):
            return f"allow={pattern!r}" if isinstance(pattern, str) else _name(pattern)
    return None


def _name(pattern: Callable[[Event], bool]) -> str:
    return f"allow={getattr(pattern, '__name__', repr(pattern))}"


def _matches(event: Event, pattern: Pattern) -> bool:
    if not isinstance(pattern, str):
        return pattern(event)
    if fnmatchcase(event.api, pattern):
        return True
    for frame in event.stack:
        names = (frame.function, frame.function.rpartition(".")[2], frame.file, str(frame))
        if any(fnmatchcase(name, pattern) for name in names):
            return True
        # Patterns such as "metrics.py" and "evaluation/metrics.py:12" match the end of a path.
        if fnmatchcase(frame.file, f"*/{pattern}") or fnmatchcase(str(frame), f"*/{pattern}"):
            return True
    return False
