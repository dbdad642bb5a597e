"""Makes `update`, `forward` and `compute` of metrics regions of a timer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from torchmetrics import Metric, MetricCollection

from syncfree.timing.timer import EventTimer

Timed = TypeVar("Timed", Metric, MetricCollection)

_METHODS = ("update", "forward", "compute")
_PLACE = "_syncfree_timing"

_classes: dict[type, type] = {}


def time_metric(metric: Timed, timer: EventTimer, name: str | None = None) -> Timed:
    """Times the methods of a metric or collection in place; see :meth:`EventTimer.wrap`.

    The members of a collection are timed too, under the collection's name and their own. A metric
    that is timed already uses the new timer from then on.
    """
    cls = untimed(type(metric))
    label = name or cls.__name__
    if "_syncfree_side" in metric.__dict__:
        raise TypeError(
            f"{cls.__name__} is updated on a side stream, which a region around its calls would "
            "not see: time it first, syncfree.on_side_stream(timer.wrap(metric))"
        )
    metric.__dict__[_PLACE] = timer, label
    if isinstance(metric, MetricCollection):
        for key, member in metric.items(keep_base=True, copy_state=False):
            time_metric(member, timer, f"{label}.{key}")
    metric.__class__ = _timed_class(cls)
    if isinstance(metric, Metric):
        # TorchMetrics sets these on each metric object, so a subclass cannot replace them.
        for method in ("update", "compute"):
            inner = metric.__dict__[method]
            metric.__dict__[method] = _region_around(
                metric, getattr(inner, "__untimed__", inner), method
            )
    return metric


def untimed(cls: type) -> type:
    """The class that `time_metric` made a timed class of, or the class itself."""
    return cls.__mro__[1] if cls in _classes.values() else cls


def _region_around(metric: Any, call: Callable[..., Any], method: str) -> Callable[..., Any]:
    timer, label = metric.__dict__[_PLACE]
    region = f"{label}.{method}"

    @functools.wraps(call)
    def timed(*args: Any, **kwargs: Any) -> Any:
        with timer.region(region):
            return call(*args, **kwargs)

    timed.__untimed__ = call  # type: ignore[attr-defined]
    return timed


def _timed_class(cls: type) -> type:
    """A subclass of the metric's class, with the same name, that times its methods.

    It is not a wrapper object, so that the class, states and attributes of the metric are found.
    """
    if cls in _classes:
        return _classes[cls]
    names = ("forward",) if issubclass(cls, Metric) else _METHODS
    body: dict[str, Any] = {name: _timed_method(cls, name) for name in names}
    if issubclass(cls, Metric):
        body["merge_state"] = _merge_state(cls)

    def reduce(self: Any, protocol: int) -> tuple[Any, ...]:
        """Copies and pickles have the metric's own class, and are not timed."""
        state = self.__getstate__() if hasattr(self, "__getstate__") else self.__dict__
        return _empty, (cls,), {key: value for key, value in state.items() if key != _PLACE}

    body["__reduce_ex__"] = reduce
    body["__module__"] = cls.__module__
    body["__qualname__"] = cls.__qualname__
    body["__doc__"] = cls.__doc__
    timed_cls = type(cls)(cls.__name__, (cls,), body)
    _classes[cls] = timed_cls
    return timed_cls


def _empty(cls: Any) -> Any:
    return cls.__new__(cls)


def _merge_state(cls: Any) -> Callable[..., Any]:
    inner: Callable[..., Any] = cls.merge_state

    @functools.wraps(inner)
    def merge_state(self: Any, *args: Any, **kwargs: Any) -> None:
        timed_cls = self.__class__
        # TorchMetrics accepts only instances of `self.__class__`, which untimed metrics are not.
        self.__class__ = cls
        try:
            inner(self, *args, **kwargs)
        finally:
            self.__class__ = timed_cls

    return merge_state


def _timed_method(cls: type, name: str) -> Callable[..., Any]:
    inner = getattr(cls, name)

    @functools.wraps(inner)
    def timed(self: Any, *args: Any, **kwargs: Any) -> Any:
        timer, label = self.__dict__[_PLACE]
        with timer.region(f"{label}.{name}"):
            return inner(self, *args, **kwargs)

    return timed
