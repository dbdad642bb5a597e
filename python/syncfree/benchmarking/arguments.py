"""Checks of what `benchmark` and `idle_gap` are given."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from functools import partial
from numbers import Integral, Real
from typing import Any


def name_of(fn: Callable[..., Any]) -> str:
    """A function's own name, of a partial that of what it calls, else that of its class.

    Example:
        >>> from functools import partial
        >>> name_of(partial(sorted, reverse=True))
        'sorted'
    """
    while isinstance(fn, partial):
        fn = fn.func
    return str(getattr(fn, "__name__", None) or type(fn).__name__)


def require_whole_call(fn: Callable[..., Any]) -> None:
    """A call of an async or generator function only makes the object whose code runs later.

    Raises:
        TypeError: The function is one of these.
    """
    call = type(fn).__call__
    for each in (fn, call):
        if inspect.iscoroutinefunction(each):
            kind, made = "coroutine", "`lambda: asyncio.run(f())`"
        elif inspect.isasyncgenfunction(each):
            kind, made = "asynchronous generator", "a function that runs it to its end"
        elif inspect.isgeneratorfunction(each):
            kind, made = "generator", "`lambda: list(f())`"
        else:
            continue
        name = getattr(fn, "__qualname__", None) or repr(fn)
        raise TypeError(
            f"fn is a function whose call does the work, but got the {kind} function {name}, of "
            f"which a call runs nothing yet: pass {made}"
        )


def require_positive(what: str, value: Any, unit: str = "", *, endless: bool = False) -> None:
    """Raises unless the value is a number above 0, and a finite one unless it may be endless.

    Raises:
        TypeError: It is no real number.
        ValueError: It is 0, less, NaN, or infinite.
    """
    expected = f"{what} is a number of {unit} above 0" if unit else f"{what} is a number above 0"
    _require(Real, value, expected)
    if not (value > 0 and (endless or value < math.inf)):
        raise ValueError(f"{expected}, but got {value!r}")


def require_share(what: str, value: Any) -> None:
    """Raises unless the value is a number between 0 and 1.

    Raises:
        TypeError: It is no real number.
        ValueError: It is outside.
    """
    expected = f"{what} is a share above 0 and below 1"
    _require(Real, value, expected)
    if not 0 < value < 1:
        raise ValueError(f"{expected}, but got {value!r}")


def require_count(what: str, value: Any) -> None:
    """Raises unless the value is a whole number from 1.

    Raises:
        TypeError: It is no whole number.
        ValueError: It is below 1.
    """
    expected = f"{what} is a count of at least 1"
    _require(Integral, value, expected)
    if value < 1:
        raise ValueError(f"{expected}, but got {value!r}")


def checked_gaps(gaps: Any) -> tuple[float, ...]:
    """Pauses of any iterable.

    Raises:
        TypeError: They are no numbers.
        ValueError: One is negative or not finite.
    """
    if isinstance(gaps, str | bytes) or not isinstance(gaps, Iterable):
        raise TypeError(f"gaps are numbers of seconds, as in [0.01, 1], but got {gaps!r}")
    checked = tuple(gaps)
    for gap in checked:
        expected = "a gap is a number of seconds of at least 0"
        _require(Real, gap, expected)
        if not (gap >= 0 and math.isfinite(gap)):
            raise ValueError(f"{expected}, but got {gap!r}")
    return checked


def _require(kind: type, value: Any, expected: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{expected}, but got {value!r}")
