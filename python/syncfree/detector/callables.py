"""What a call of a function returns: a result, or an object that runs the code later."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Literal

CallKind = Literal["plain", "coroutine", "generator", "asynchronous generator"]


def kind_of_call(function: Any) -> CallKind:
    """What a call of a function, or of a callable object, returns.

    Example:
        >>> from functools import partial
        >>> from syncfree.detector.callables import kind_of_call
        >>> class Batches:
        ...     def __call__(self):
        ...         yield 1
        >>> kind_of_call(partial(Batches())), kind_of_call(len)
        ('generator', 'plain')
    """
    while isinstance(function, functools.partial):
        function = function.func
    # For a callable object, its `__call__` decides.
    for each in (function, type(function).__call__):
        if inspect.isasyncgenfunction(each):
            return "asynchronous generator"
        if inspect.isgeneratorfunction(each):
            return "generator"
        if inspect.iscoroutinefunction(each):
            return "coroutine"
    return "plain"
