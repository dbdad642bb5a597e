"""The base of our metric classes: TorchMetrics' contract, without its copies and waits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling
from torch.nn.modules import module as _hooks
from torchmetrics.utilities.data import _squeeze_if_scalar, dim_zero_mean, dim_zero_sum
from torchmetrics.utilities.prints import rank_zero_only

from syncfree._call_places import warn_at_call
from syncfree._capture import is_capturing
from syncfree._metric_checks import all_unset, are_shared
from syncfree._states import StatesInPlace, can_take, settle

_is_tracing = torch._C._is_tracing  # the function behind torch.jit.is_tracing, in half its time
_call_impl = nn.Module._call_impl
_warn_in_first_process = rank_zero_only(warn_at_call)

# What makes a call unusual: hooks of this or of all modules, which nn.Module checks at each call; a
# `forward` set on the object; and options that change TorchMetrics' steps.
_of_the_class = vars(nn.Module)
_of_all_modules = vars(_hooks)
_OF_STEPS = "_is_synced", "dist_sync_on_step", "compute_on_cpu"
_UNUSUAL = (
    "forward",
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_compiled_call_impl",
    *_OF_STEPS,
)
_GLOBAL_HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)

# Methods that a user may replace, and the functions that our classes have under these names,
# including those inherited from TorchMetrics.
_UPDATES = "update", "_update_state"
_COMPUTES = "compute", "_final_state"
_REPLACEABLE = (*_UPDATES, *_COMPUTES)
_ours: set[Any] = set()


class SyncFreeMetric(StatesInPlace):
    """A mixin that comes before the TorchMetrics class that a metric replaces.

    State tensors keep their memory across `update`, `forward`, `compute` and `reset`, so that a
    captured CUDA graph keeps counting into them.
    """

    # torch.jit.script, which TorchMetrics' classes support, cannot read annotations that are text.
    if TYPE_CHECKING:
        _all_own: bool

        # Whether no other base class changes how a module is called: see `_calls_plainly`.
        _is_called_plainly: ClassVar[bool]

    # Whether update and compute are ours and the user has replaced neither.
    _all_own = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # A side stream and a timer make subclasses of the same name. A user may have put other
        # methods on the class by then, which must not count as ours.
        is_made = cls.__mro__[1].__qualname__ == cls.__qualname__
        if cls.__module__.startswith("syncfree.") and not is_made:
            # Python's errors for missing and unknown arguments quote the function's qualified name,
            # which should be that of the method that the user called.
            for method, called in (("_evaluate", "forward"), ("update", "update")):
                function, name = getattr(cls, method), f"{cls.__name__}.{called}"
                if function.__qualname__ != name:
                    setattr(cls, method, _named(function, name))
            _ours.update(getattr(cls, name, None) for name in _REPLACEABLE)

    def _are_own(self, methods: tuple[str, ...]) -> bool:
        """Whether the class has our functions under these names; notes those that it has not."""
        others = [name for name in methods if getattr(type(self), name, None) not in _ours]
        for name in others:
            self._use_method(name)
        return not others

    def _use_method(self, name: str) -> None:
        """Notes that this method is not ours."""
        self.__dict__["_all_own"] = False
        if name in ("_update_state", "_final_state"):
            self.__dict__[f"_has{name}"] = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _REPLACEABLE and (name in self.__dict__ or name[0] == "_"):
            self._use_method(name)  # set by the user on this object alone
        super().__setattr__(name, value)

    def _raise_pending(self) -> None:
        """Raises errors that kernels recorded for earlier batches, in metrics that validate."""

    def _evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Adds a batch to the states and returns its value, a scalar if it has one element.

        Returns NotImplemented, and adds nothing, if the ops do not support the states.
        """
        raise NotImplementedError

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """`forward`, with the hooks of nn.Module if there are any.

        Makes the checks of nn.Module's `__call__` without its frames and its slow look for a
        tracer. If nothing is unusual, the body of `forward` is repeated here: its frames take as
        long as a tensor's allocation.
        """
        own = self.__dict__
        if (
            is_dynamo_compiling()
            or _is_tracing()
            or not self._is_called_plainly
            or type(self).forward is not _our_forward
            # Differs while torch.fx traces. A lookup on the class would take twice the time.
            or _of_the_class["__call__"] is not _of_the_class["_wrapped_call_impl"]
            or _of_the_class["_call_impl"] is not _call_impl
            or not all_unset(own, _UNUSUAL, _of_all_modules, _GLOBAL_HOOKS)
            or self.full_state_update
            or not self._all_own
        ):
            return super().__call__(*args, **kwargs)
        if are_shared(own):
            self._let_go_of_shared_states(in_forward=True)
        # Passing on an empty `**kwargs` takes 0.1 us.
        value = self._evaluate(*args, **kwargs) if kwargs else self._evaluate(*args)
        if value is NotImplemented:
            return super().forward(*args, **kwargs)
        _count_update(own, value)
        return value

    @torch.jit.unused
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Adds a batch to the states and returns its value, as `compute` would for it alone."""
        return self._syncfree_forward(args, kwargs)

    def _syncfree_forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        own = self.__dict__
        is_compiled = is_dynamo_compiling()
        if not is_compiled and are_shared(own):
            self._let_go_of_shared_states(in_forward=True)
        value: Any = NotImplemented
        if not (
            own["_is_synced"]
            or self.dist_sync_on_step
            or self.compute_on_cpu
            or self.full_state_update
            or not self._all_own
        ):
            value = self._evaluate(*args, **kwargs)
        if value is NotImplemented:
            return super().forward(*args, **kwargs)
        if is_compiled:
            self._count_compiled_update(value)
        else:
            _count_update(own, value)
        return value

    def _count_compiled_update(self, value: Any = None) -> None:
        self._update_count = 1  # a growing number would be compiled anew each time
        self._computed = None
        self._forward_cache = value

    def _forward_full_state_update(self, *args: Any, **kwargs: Any) -> Any:
        # Called for `dist_sync_on_step`. A state that is no sum, as a subclass may have, can depend
        # on all earlier batches, so that TorchMetrics has to update it with them.
        if self.full_state_update is False and all(map(self._is_sum, self._defaults)):
            return self._forward_reduce_state_update(*args, **kwargs)
        return super()._forward_full_state_update(*args, **kwargs)

    def _forward_reduce_state_update(self, *args: Any, **kwargs: Any) -> Any:
        """`forward` for options and overridden methods that `_evaluate` does not support.

        Sets the states aside instead of copying them, so that the time does not grow with lists.
        """
        if not all(self._adds_up(name) for name in self._defaults):
            before = {name: state.clone() for name, state in self._hidden_states().items()}
            value = super()._forward_reduce_state_update(*args, **kwargs)
            for name, state in before.items():
                self.__dict__[name] += state
            return value
        totals = self._states_to_reduce()
        count, on_cpu = self._update_count, self.compute_on_cpu
        for name, total in totals.items():
            default = self._default_of(name)
            empty: Any = []
            if isinstance(default, Tensor):
                empty = default.detach().clone().to(total.device)  # type: ignore[union-attr]
            self.__dict__[name] = empty
        self._computed, self._update_count = None, 0
        self._to_sync, self._should_unsync = self.dist_sync_on_step, True
        self.compute_on_cpu, self._enable_grad = False, True
        batch: dict[str, Any] = {}
        try:
            self.update(*args, **kwargs)
            batch = self._states_to_reduce()
            count += 1
            value = self.compute()
        finally:
            # Not `dict.update`, which torch.compile refuses (2.11).
            for name, total in totals.items():
                self.__dict__[name] = total
            self._update_count = count
            self._is_synced, self._computed = False, None
            self._to_sync, self._should_unsync = self.sync_on_compute, True
            self.compute_on_cpu, self._enable_grad = on_cpu, False
            if batch:  # also if `compute` raises the error of an earlier batch
                self._add_states(batch)
        if on_cpu:
            self._move_list_states_to_cpu()
        return value

    def _adds_up(self, name: str) -> bool:
        return self._is_sum(name) or self._reductions[name] is dim_zero_mean

    def _is_sum(self, name: str) -> bool:
        return isinstance(getattr(self, name), list) or self._reductions[name] is dim_zero_sum

    @torch.no_grad()
    def _add_states(self, batch: dict[str, Any]) -> None:
        for name, reduction in self._reductions_of_states().items():
            total, more = getattr(self, name), batch[name]
            if isinstance(total, list):
                # Their autograd graphs would keep every batch alive.
                total.extend(piece.detach() for piece in more)
            elif reduction is dim_zero_mean:
                count = self._update_count
                mean = ((count - 1) * total + more).float() / count
                self.__dict__[name] = settle(total, mean)
            elif total.is_meta and name in self._hidden_defaults:  # set aside on the meta device
                self.__dict__[name] = more
            elif can_take(total, more):
                total.add_(more)
            else:
                self.__dict__[name] = total + more

    def _wrap_update(self, update: Callable[..., None]) -> Callable[..., None]:
        # Called for each new object, also an unpickled one. `__init_subclass__` would miss classes
        # whose first base defines it without a call of `super()`.
        if "_is_called_plainly" not in vars(type(self)):
            type(self)._is_called_plainly = _calls_plainly(type(self))
        if not self._are_own(_UPDATES):
            theirs = super()._wrap_update(update)

            @functools.wraps(update)
            def careful(*args: Any, **kwargs: Any) -> None:
                if not is_dynamo_compiling():
                    self._let_go_of_shared_states(in_forward=False)
                theirs(*args, **kwargs)

            return careful

        @functools.wraps(update)
        def counted(*args: Any, **kwargs: Any) -> None:
            if is_dynamo_compiling():
                update(*args, **kwargs)
                self._count_compiled_update()
            else:
                own = self.__dict__
                if are_shared(own):
                    self._let_go_of_shared_states(in_forward=False)
                if kwargs:
                    update(*args, **kwargs)
                else:
                    update(*args)
                _count_update(own)
            if self.compute_on_cpu:
                self._move_list_states_to_cpu()

        return counted

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        if not self._are_own(_COMPUTES):
            theirs = super()._wrap_compute(compute)

            @functools.wraps(compute)
            def checked(*args: Any, **kwargs: Any) -> Any:
                value = theirs(*args, **kwargs)
                self._raise_pending()
                return value

            return checked

        @functools.wraps(compute)
        def cached(*args: Any, **kwargs: Any) -> Any:
            if not (self._update_count or self._is_replayed or is_dynamo_compiling()):
                _warn_in_first_process(
                    f"The ``compute`` method of metric {self.__class__.__name__} was called before "
                    "the ``update`` method which may lead to errors, as metric states have not yet "
                    "been updated."
                )
            known: Any = self._computed
            if known is not None and not self._is_replayed:
                self._raise_pending()
                return known
            with self.sync_context(
                dist_sync_fn=self.dist_sync_fn,
                should_sync=self._to_sync,
                should_unsync=self._should_unsync,
            ):
                value = _squeeze_if_scalar(compute(*args, **kwargs))
            if self.compute_with_cache:
                self._computed = value
            # Not before the sync, so that all processes of a group call the same collectives.
            self._raise_pending()
            return value

        return cached


_our_forward = SyncFreeMetric.forward


def _calls_plainly(cls: type[SyncFreeMetric]) -> bool:
    behind_ours = cls.__mro__[cls.__mro__.index(SyncFreeMetric) + 1 :]
    return (
        all("__call__" not in vars(base) for base in behind_ours if base is not nn.Module)
        and not any(hasattr(cls, name) for name in _OF_STEPS)  # such as a subclass's property
        and cls._call_impl is nn.Module._call_impl
        and cls._wrapped_call_impl is nn.Module._wrapped_call_impl
    )


def _count_update(attributes: dict[str, Any], value: Any = None) -> None:
    # Not set as attributes: nn.Module and Metric would take a microsecond to inspect each.
    if is_capturing():
        attributes["_is_replayed"] = True
    attributes["_update_count"] += 1
    attributes["_computed"] = None
    attributes["_forward_cache"] = value


def _named(function: Any, name: str) -> Any:
    """A copy of a function under another qualified name, the one that Python's errors quote."""
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    functools.update_wrapper(copy, function)
    del copy.__wrapped__  # type: ignore[attr-defined]
    copy.__qualname__ = name
    return copy
