"""`syncfree.on_side_stream`: metrics updated on another CUDA stream, beside the model's step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor
from torch.compiler import is_dynamo_compiling

from syncfree._torchmetrics import require

require("syncfree.on_side_stream")
from torchmetrics import Metric, MetricCollection  # noqa: E402

from syncfree._side_stream import PLACE, SideStream  # noqa: E402

OnSideStream = TypeVar("OnSideStream", bound=Metric | MetricCollection)

_TIMING = "_syncfree_timing"

_classes: dict[tuple[type, frozenset[str]], type] = {}


def on_side_stream(metric: OnSideStream, *, copy_inputs: bool | None = None) -> OnSideStream:
    """Updates a metric, or a collection, on a CUDA stream of its own.

    `update` returns as always and leaves the current stream free: the GPU goes on with the model
    while the metric is computed. `compute`, `reset`, and whatever else reads the states make the
    current stream wait for the updates; so does `forward`, because its value is for the caller. The
    host never waits. Inputs stay alive until the side stream has read them, however early they are
    deleted.

    The metric stays the same object, with the same states, and is still an instance of its class.
    Copies and pickles of it have a stream of their own. A collection shares one stream among its
    metrics; a wrapper shares its stream with the metrics inside. On the CPU, under `torch.compile`
    and while a CUDA graph is captured, updates run on the current stream. Once a method of the
    metric has been captured they stay there, because the metric cannot see replays. Compiled code
    does not know of the side stream: call `compute` or `reset` between updates in compiled and in
    other code.

    As with an asynchronous collective, inputs must not be written in place between `update` and the
    next `compute`: the update may still be reading them. Outputs of a CUDA graph are written again
    at its next replay (``torch.compile(mode="reduce-overhead")`` makes such graphs), and so are
    buffers that batches are copied into. Pass ``copy_inputs=True`` for those. Tensors are found in
    lists, tuples and mappings.

    Args:
        metric: A metric or a collection, of TorchMetrics or ours.
        copy_inputs: Copy the inputs on the current stream first, so that they may be written again.
            ``None`` leaves it as earlier calls have set it, for this metric or one inside, and at
            first that is no copy. What is set for a metric of a collection on a side stream holds
            for the whole collection, because they share the stream.

    Returns:
        The metric itself.

    Raises:
        TypeError: If ``metric`` is neither.

    Example:
        >>> import torch, syncfree
        >>> metric = syncfree.on_side_stream(syncfree.PeakSignalNoiseRatio(data_range=1.0))
        >>> for _ in range(3):
        ...     metric.update(torch.zeros(4), torch.ones(4))
        >>> metric.compute()
        tensor(0.)
    """
    if not isinstance(metric, (Metric, MetricCollection)):
        raise TypeError(
            f"on_side_stream takes a metric or a collection, but got {type(metric).__name__}"
        )
    side = metric.__dict__.get(PLACE)
    if side is None:
        side = SideStream()
    _place(metric, side)
    if copy_inputs is not None:
        side.copy_inputs = copy_inputs
    return metric


def _place(metric: Metric | MetricCollection, side: SideStream) -> None:
    """Puts a metric on a side stream, with all metrics inside it."""
    for each in metric.modules():
        if not isinstance(each, (Metric, MetricCollection)):
            continue
        before = each.__dict__.get(PLACE)
        each.__dict__[PLACE] = side
        if each.__dict__.get("_is_replayed"):  # one of ours, captured before it got a stream
            side.stay_here()
        if before is not None:
            side.follow(before)
            continue
        each.__class__ = _side_class(type(each), _state_names(each))
        if isinstance(each, Metric):
            # TorchMetrics sets these on each object, where a class cannot override them.
            each.__dict__["update"] = _updating(each, each.__dict__["update"])
            each.__dict__["compute"] = _reading(each, each.__dict__["compute"])


def _state_names(metric: Any) -> frozenset[str]:
    if isinstance(metric, MetricCollection):
        return frozenset()
    return frozenset((*metric._defaults, *metric.__dict__.get("_hidden_defaults", ())))


def _side_class(cls: Any, states: frozenset[str]) -> type:
    """A subclass of the metric's class, of the same name, that uses the side stream.

    Not a wrapper object, which would hide the metric's class, states and attributes.
    """
    if (cls, states) in _classes:
        return _classes[cls, states]
    is_metric = issubclass(cls, Metric)
    body: dict[str, Any] = {name: _State(name) for name in states}
    body["forward"] = _forward(cls)
    body["reset"] = _behind_updates(cls.reset)
    body["_apply"] = _behind_updates(cls._apply)  # `.to`, which also reads buffers and weights
    if is_metric:
        body["_wrap_update"] = _wrapping("_wrap_update", cls, _updating)
        body["_wrap_compute"] = _wrapping("_wrap_compute", cls, _reading)
        body["add_state"] = _add_state(cls)
        body["merge_state"] = _merge_state(cls)
    else:
        body.update(_collection_methods(cls))

    def reduce(self: Any, protocol: int) -> tuple[Any, ...]:
        """Classes made here cannot be imported by name: unpickling makes the copy's class anew."""
        _let_read(self)
        state = self.__getstate__() if hasattr(self, "__getstate__") else self.__dict__
        kept = {key: value for key, value in state.items() if key != _TIMING}
        return _empty, (_own_class(cls), states), kept

    body["__reduce_ex__"] = reduce
    body["__module__"] = cls.__module__
    body["__qualname__"] = cls.__qualname__
    body["__doc__"] = cls.__doc__
    found: type = type(cls)(cls.__name__, (cls,), body)
    _classes[cls, states] = found
    return found


def _own_class(cls: type) -> type:
    """The importable class beneath the subclasses that a timer made."""
    from syncfree.timing.metrics import untimed

    return untimed(cls)


def _empty(cls: type, states: frozenset[str]) -> Any:
    made: Any = _side_class(cls, states)
    return made.__new__(made)


class _State:
    """The descriptor of a state: reading it makes the current stream wait for the updates."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, metric: Any, owner: type) -> Any:
        if metric is None:
            return self
        try:
            value = metric.__dict__[self._name]
        except KeyError:
            raise AttributeError(
                f"{type(metric).__name__!r} object has no attribute {self._name!r}"
            ) from None
        side = metric.__dict__.get(PLACE)
        if side is not None and not (side.is_inside or is_dynamo_compiling()):
            side.join()
            side.hand_out(value)
        return value

    def __set__(self, metric: Any, value: Any) -> None:
        metric.__dict__[self._name] = value

    def __delete__(self, metric: Any) -> None:
        del metric.__dict__[self._name]


def _let_read(metric: Any) -> None:
    """Lets the current stream read a metric's states, also through ``__dict__``."""
    side = metric.__dict__[PLACE]
    if side.is_inside:
        return
    side.join()
    for each in metric.modules():
        for name in _state_names(each) if isinstance(each, Metric) else ():
            side.hand_out(each.__dict__.get(name))


def _let_write(metric: Any) -> None:
    """Lets the side stream write a metric's states, which another stream may have allocated."""
    side = metric.__dict__[PLACE]
    for name in _state_names(metric):
        # Lists are only appended to. Not bound to a variable: one more reference would make the
        # state count as shared.
        if isinstance(metric.__dict__.get(name), Tensor):
            side.keep(metric.__dict__[name])


def _updating(metric: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if metric.__dict__[PLACE].is_inside:
            _let_write(metric)
        return inner(*args, **kwargs)

    @functools.wraps(inner)
    def update(*args: Any, **kwargs: Any) -> Any:
        return metric.__dict__[PLACE].run(call, args, kwargs)

    return _seen_through(update, inner)


def _reading(metric: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    def compute(*args: Any, **kwargs: Any) -> Any:
        _let_read(metric)
        return inner(*args, **kwargs)

    return _seen_through(compute, inner)


def _seen_through(outer: Callable[..., Any], inner: Callable[..., Any]) -> Callable[..., Any]:
    """Makes ``outer`` look like ``inner`` to collections, which unwrap `update` to form groups."""
    outer.__wrapped__ = getattr(inner, "__wrapped__", inner)  # type: ignore[attr-defined]
    return outer


def _wrapping(name: str, cls: type, around: Callable[..., Any]) -> Callable[..., Any]:
    """Overrides `_wrap_update` or `_wrap_compute`, which is called for each copy of a metric."""
    theirs = getattr(cls, name)

    def wrap(self: Any, method: Callable[..., Any]) -> Callable[..., Any]:
        wrapped: Callable[..., Any] = around(self, theirs(self, method))
        return wrapped

    return wrap


def _forward(cls: Any) -> Callable[..., Any]:
    inner: Callable[..., Any] = cls.forward

    @functools.wraps(inner)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        side = self.__dict__[PLACE]

        def call(*args: Any, **kwargs: Any) -> Any:
            if side.is_inside:
                _let_write(self)
            return inner(self, *args, **kwargs)

        value = side.run(call, args, kwargs)
        side.join()
        side.hand_out(value)
        return value

    return forward


def _behind_updates(inner: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a method that reads or replaces states, so that it first waits for the updates."""

    @functools.wraps(inner)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        _let_read(self)
        return inner(self, *args, **kwargs)

    return method


def _add_state(cls: Any) -> Callable[..., Any]:
    """A state that is added late, such as in the first update, becomes a descriptor too."""
    inner: Callable[..., Any] = cls.add_state

    @functools.wraps(inner)
    def add_state(self: Any, *args: Any, **kwargs: Any) -> None:
        inner(self, *args, **kwargs)
        self.__class__ = _side_class(cls, _state_names(self))

    return add_state


def _merge_state(cls: Any) -> Callable[..., Any]:
    inner: Callable[..., Any] = cls.merge_state

    @functools.wraps(inner)
    def merge_state(self: Any, *args: Any, **kwargs: Any) -> None:
        _let_read(self)
        side_class = self.__class__
        # TorchMetrics takes instances of `self.__class__` only; metrics without a stream are none.
        self.__class__ = _own_class(cls)
        try:
            inner(self, *args, **kwargs)
        finally:
            self.__class__ = side_class

    return merge_state


def _collection_methods(cls: Any) -> dict[str, Callable[..., Any]]:
    """The methods of a collection, whose metrics all use its stream."""

    @functools.wraps(cls.update)
    def update(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__[PLACE].run(functools.partial(cls.update, self), args, kwargs)

    @functools.wraps(cls.add_metrics)
    def add_metrics(self: Any, *args: Any, **kwargs: Any) -> None:
        cls.add_metrics(self, *args, **kwargs)
        _place(self, self.__dict__[PLACE])

    return {
        "update": update,
        "compute": _behind_updates(cls.compute),
        "add_metrics": add_metrics,
    }
