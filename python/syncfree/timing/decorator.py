"""`syncfree.timed`: makes the calls of functions and metrics regions of a timer."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar, get_args, overload

from syncfree.timing.samples import Kind
from syncfree.timing.timer import EventTimer, default_timer, require_timer

Target = TypeVar("Target")


@overload
def timed(
    target: Target,
    *,
    name: str | None = None,
    kind: Kind = "compute",
    timer: EventTimer | None = None,
) -> Target: ...


@overload
def timed(
    target: None = None,
    *,
    name: str | None = None,
    kind: Kind = "compute",
    timer: EventTimer | None = None,
) -> Callable[[Target], Target]: ...


def timed(
    target: Any = None,
    *,
    name: str | None = None,
    kind: Kind = "compute",
    timer: EventTimer | None = None,
) -> Any:
    """Makes each call of a function, or of a metric's methods, a region of a timer.

    Use it as a decorator, with or without arguments, or call it with a metric.

    Args:
        target: A function, a coroutine function, or a metric or collection of TorchMetrics or
            syncfree.
        name: The region's name; default: the function's qualified name. The regions of a metric are
            ``name.update``, ``name.forward`` and ``name.compute``; default: the class's name.
        kind: ``"compute"``, ``"h2d"`` or ``"d2h"``; only ``"compute"`` for a metric.
        timer: Default: :func:`syncfree.timing.default_timer`, made at the first call.

    Returns:
        The function to call instead, or the metric itself.

    Raises:
        TypeError: The target is none of these, or is a generator function, whose code runs in
            pieces; or ``timer`` is not a timer.
        ValueError: There is no such kind, or a metric was given another kind than ``"compute"``.

    Example:
        >>> import syncfree
        >>> timer = syncfree.EventTimer("cpu")
        >>> @syncfree.timed(timer=timer)
        ... def step():
        ...     return sum(range(1000))
        >>> step()
        499500
        >>> timer.summary()["step"].count
        1
    """
    require_timer(timer, "timed")
    if kind not in get_args(Kind):
        raise ValueError(f"kind must be 'compute', 'h2d' or 'd2h', but got {kind!r}")
    if target is None:
        return functools.partial(timed, name=name, kind=kind, timer=timer)
    return wrapped(target, name, kind, timer, asked="timed")


def wrapped(
    target: Any, name: str | None, kind: Kind, timer: EventTimer | None, *, asked: str
) -> Any:
    """The result of `timed` for a target; errors name `asked`, which the user called."""
    if _is_metric(target):
        from syncfree.timing.metrics import time_metric

        if kind != "compute":
            raise ValueError(
                f"the methods of a metric are regions of kind 'compute', but got {kind!r}: leave "
                "kind out"
            )
        return time_metric(target, timer or default_timer(), name)
    if isinstance(target, (staticmethod, classmethod)):  # decorated above @staticmethod
        inner = wrapped(target.__func__, name, kind, timer, asked=asked)
        return type(target)(inner)
    if not callable(target) or isinstance(target, type):
        named = isinstance(target, str) and asked == "timed"
        hint = "; for a name write `timed(name=...)`" if named else ""
        raise TypeError(f"{asked} takes a function or a metric, but got {_described(target)}{hint}")
    function = _function_of(target)
    qualified = getattr(function, "__qualname__", type(function).__name__)
    # For a callable object, its `__call__` decides what a call is.
    looked_at = (function, type(function).__call__)
    if any(inspect.isgeneratorfunction(e) or inspect.isasyncgenfunction(e) for e in looked_at):
        raise TypeError(
            f"{asked} got the generator function {qualified}, whose code runs in pieces: "
            "put `with timer.region(...)` around the pieces"
        )
    label = str(name or qualified)

    if any(map(inspect.iscoroutinefunction, looked_at)):

        @functools.wraps(target)
        async def later(*args: Any, **kwargs: Any) -> Any:
            with (timer or default_timer()).region(label, kind):
                return await target(*args, **kwargs)

        return later

    @functools.wraps(target)
    def call(*args: Any, **kwargs: Any) -> Any:
        with (timer or default_timer()).region(label, kind):
            return target(*args, **kwargs)

    return call


def _function_of(target: Any) -> Any:
    """The function of a partial, whose name identifies the partial."""
    while isinstance(target, functools.partial):
        target = target.func
    return target


def _is_metric(target: Any) -> bool:
    # If TorchMetrics was never imported, there are no metrics.
    package = sys.modules.get("torchmetrics")
    return package is not None and isinstance(target, (package.Metric, package.MetricCollection))


def _described(target: Any) -> str:
    return f"the class {target.__name__}" if isinstance(target, type) else type(target).__name__
