"""What a call gives: a result, or something that runs the code of the function later."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Literal

CallKind = Literal["plain", "coroutine", "generator", "asynchronous generator"]


def kind_of_call(function: Any) -> CallKind:
    """What a call of a function, or of an object that is called as one, gives.

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
    # Of an object that is called, its method says it.
    for each in (function, type(function).__call__):
        if inspect.isasyncgenfunction(each):
            return "asynchronous generator"
        if inspect.isgeneratorfunction(each):
            return "generator"
        if inspect.iscoroutinefunction(each):
            return "coroutine"
    return "plain"
