"""Checks of the arguments of `benchmark` and `idle_gap`."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from functools import partial
from numbers import Integral, Real
from typing import Any


def name_of(fn: Callable[..., Any]) -> str:
    """A function's own name; of a partial, that of its function; otherwise that of the class.

    Example:
        >>> from functools import partial
        >>> name_of(partial(sorted, reverse=True))
        'sorted'
    """
    while isinstance(fn, partial):
        fn = fn.func
    return str(getattr(fn, "__name__", None) or type(fn).__name__)


def require_whole_call(fn: Callable[..., Any]) -> None:
    """Refuses async and generator functions, of which a call only makes an object to run later.

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
    """Raises unless the value is a number above 0, which only with `endless` may be infinite.

    Raises:
        TypeError: It is not a real number.
        ValueError: It is 0, negative, NaN, or infinite.
    """
    expected = f"{what} is a number of {unit} above 0" if unit else f"{what} is a number above 0"
    _require(Real, value, expected)
    if not (value > 0 and (endless or value < math.inf)):
        raise ValueError(f"{expected}, but got {value!r}")


def require_share(what: str, value: Any) -> None:
    """Raises unless the value is a number between 0 and 1.

    Raises:
        TypeError: It is not a real number.
        ValueError: It is outside.
    """
    expected = f"{what} is a share above 0 and below 1"
    _require(Real, value, expected)
    if not 0 < value < 1:
        raise ValueError(f"{expected}, but got {value!r}")


def require_count(what: str, value: Any) -> None:
    """Raises unless the value is an integer of at least 1.

    Raises:
        TypeError: It is not an integer.
        ValueError: It is below 1.
    """
    expected = f"{what} is a count of at least 1"
    _require(Integral, value, expected)
    if value < 1:
        raise ValueError(f"{expected}, but got {value!r}")


def checked_gaps(gaps: Any) -> tuple[float, ...]:
    """The pauses in an iterable, as a tuple.

    Raises:
        TypeError: They are not numbers.
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
