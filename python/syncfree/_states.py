"""Metric states that keep their memory, and their reduction over processes.

A hidden state is a sum that a metric of ours keeps and reduces like a state, but that the
TorchMetrics class does not have. Followers of a metric are the members of its compute group
(`_compute_groups`) that hold its states on purpose. A state is held elsewhere if anybody else has a
reference to it or to its storage: then a copy takes its place, and is written instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torchmetrics import Metric
from torchmetrics.utilities.data import dim_zero_sum
from torchmetrics.utilities.distributed import gather_all_tensors
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from syncfree import _state_reduction
from syncfree._capture import is_capturing
from syncfree._metric_checks import is_held_by_more


def of_any_mode(state: Tensor, device: torch.device) -> Tensor:
    """A copy that may be written to outside of `torch.inference_mode` as well."""
    if is_dynamo_compiling():  # compiled code makes tensors of the mode that it runs in
        copy: Tensor = torch.compiler.disable(_copy_of_any_mode)(state, device)
        return copy
    return _copy_of_any_mode(state, device)


def _copy_of_any_mode(state: Tensor, device: torch.device) -> Tensor:
    records = torch.is_grad_enabled()
    # Leaving inference mode would turn on the recording of gradients.
    with torch.inference_mode(False), torch.set_grad_enabled(records):
        return state.clone().to(device)


class StatesInPlace(Metric):
    """TorchMetrics' handling of states, except that new values are written into the old storage.

    So a captured CUDA graph of `update` keeps counting after `reset`, `merge_state` and
    `load_state_dict`. States are reduced over processes in one collective for each dtype and
    reduction.
    """

    if TYPE_CHECKING:  # torch.jit.script cannot read annotations that are text
        _hidden_defaults: Mapping[str, Tensor]
        _is_replayed: bool
        _is_merged: bool
        _is_loaded: bool
        _followers: int
    else:
        # Not set in `__init__`, since a subclass may call TorchMetrics' own instead. A metric with
        # hidden states gets a new dict. No mapping proxy, which torch.compile cannot read.
        _hidden_defaults = {}

    # The number of followers during an update, else 0.
    _followers = 0

    # Whether a CUDA graph counts into the states; the metric does not see its replays.
    _is_replayed = False

    # Whether `merge_state` has added counts, which is no update.
    _is_merged = False

    # Whether the counts came from a checkpoint.
    _is_loaded = False

    # Whether hidden states, which count errors, can be other than zero.
    _validates = True

    def add_state(self, name: str, default: Any, *args: Any, **kwargs: Any) -> None:
        """As TorchMetrics', but sums of a half-precision default dtype become float32.

        TorchMetrics' constructors leave the dtype of sums to torch's default, which is half in
        Lightning's `configure_model` with `bf16-true`.
        """
        if isinstance(default, Tensor) and is_half(default.dtype):
            default = default.float() if default.dtype == torch.get_default_dtype() else default
        super().add_state(name, default, *args, **kwargs)

    def _add_hidden_state(self, name: str, default: Tensor) -> None:
        """Adds a hidden state; what lists, saves, compares or converts states must not see it."""
        self._keep_hidden_default(name, default)
        compiled = is_dynamo_compiling()  # `of_any_mode` would break the graph
        self.__dict__[name] = default.clone() if compiled else of_any_mode(default, default.device)

    def _leave_meta(self, device: torch.device) -> None:
        """Moves hidden states that were made on the meta device to the device of the others.

        If the others are empty lists, which have no device, that is the device of the first batch.
        """
        for name, state in self._hidden_states().items():
            if state.is_meta and device.type != "meta":
                self._add_hidden_state(name, torch.zeros_like(state, device=device))

    def _keep_hidden_default(self, name: str, default: Tensor) -> None:
        self.__dict__["_hidden_defaults"] = {**self._hidden_defaults, name: default}

    def _hidden_states(self) -> dict[str, Tensor]:
        return {name: self.__dict__[name] for name in self._hidden_defaults}

    def _states_to_reduce(self) -> dict[str, Tensor | list[Tensor]]:
        """All states to be reduced over processes, as `_reductions_of_states` says."""
        return {**self.metric_state, **self._hidden_states()}

    def _reductions_of_states(self) -> dict[str, Any]:
        return {**self._reductions, **dict.fromkeys(self._hidden_defaults, dim_zero_sum)}

    def _default_of(self, name: str) -> Any:
        return self._defaults.get(name, self._hidden_defaults.get(name))

    def reset(self) -> None:
        """Sets the states to their defaults, in place."""
        if self._cache is not None:
            for name, state in self._cache.items():
                setattr(self, name, state)
        attributes = self.__dict__
        attributes.update(
            _update_count=0, _forward_cache=None, _computed=None, _cache=None, _is_synced=False
        )
        attributes.update(_is_merged=False, _is_loaded=False)
        olds: list[Tensor] = []
        news: list[Tensor] = []
        for name in (*self._defaults, *self._hidden_defaults):
            default, held_elsewhere = self._default_of(name), self._is_held_elsewhere(name)
            state = attributes[name]
            if name in self._hidden_defaults and default.is_meta and not state.is_meta:
                default = torch.zeros_like(state)  # of a leader, which has left the meta device
                self._keep_hidden_default(name, default)
            if isinstance(state, list):
                attributes[name] = []  # not cleared: somebody else may hold the list
            elif not held_elsewhere and _can_hold(state, default):
                olds.append(state)
                news.append(default)
            else:
                attributes[name] = of_any_mode(default.detach(), state.device)
        if olds:
            with torch.no_grad():
                torch._foreach_copy_(olds, news)

    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        """Adds the states of another metric, of this class or TorchMetrics', or those in a dict."""
        given = incoming_state
        if isinstance(given, Metric) and type(given) is _class_of_torchmetrics(type(self)):
            given = given.metric_state  # from code that still imports from TorchMetrics
        with self._states_in_place():
            super().merge_state(given)
        if isinstance(incoming_state, StatesInPlace):
            for name, more in incoming_state._hidden_states().items():
                if more.is_meta:  # it has seen no batch
                    continue
                self._leave_meta(more.device)
                state = self.__dict__[name]
                self.__dict__[name] = settle(state, state + more.to(state.device))
        self.__dict__.update(_computed=None, _is_merged=True)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        loads = any(prefix + name in state_dict for name in self._defaults)
        with self._states_in_place():
            super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        if loads:
            self.__dict__.update(_computed=None, _is_merged=False, _is_loaded=True)
            device = _device_of(self.metric_state)
            if device is not None:
                self._leave_meta(device)  # the whole metric may have been on the meta device
            for name, state in self._hidden_states().items():
                self.__dict__[name] = settle(state, self._hidden_defaults[name])

    @contextmanager
    def _states_in_place(self) -> Iterator[None]:
        """Writes states that the body has replaced into the storage of the old ones."""
        shared = {name for name in self._defaults if self._is_held_elsewhere(name)}
        before = self.metric_state
        yield
        for name, old in before.items():
            new = self.__dict__[name]
            if new is not old:
                self.__dict__[name] = settle(None if name in shared else old, new)

    # Others may hold a state too: the members of a compute group, or a user who has kept it from
    # before a reset. TorchMetrics makes a new tensor at each step; here only if somebody holds it.

    def _is_held_elsewhere(self, name: str) -> bool:
        return is_held_by_more(self.__dict__, {name: None}, 1) and not self._is_replayed

    def _let_go_of_shared_states(self, in_forward: bool) -> None:
        """Replaces states that are held elsewhere by copies, before a batch is added in place."""
        attributes = self.__dict__
        most = 1 + self._followers
        for name in self._defaults:
            if not is_held_by_more(attributes, {name: None}, most):
                continue
            state = attributes[name]
            if not (self._is_replayed or is_capturing()):
                attributes[name] = (
                    list(state) if isinstance(state, list) else of_any_mode(state, state.device)
                )
            elif in_forward:
                raise RuntimeError(
                    f"Expected {type(self).__name__} alone to hold its state `{name}`, into which "
                    "a CUDA graph counts, but another metric or variable holds it too. In a "
                    "collection with compute groups capture `update`, or make the collection with "
                    "`compute_groups=False`."
                )

    def _copy_state_dict(self) -> dict[str, Any]:
        hidden = {name: state.clone() for name, state in self._hidden_states().items()}
        return {**super()._copy_state_dict(), **hidden}

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Any = "") -> Any:
        """As TorchMetrics', but only `set_dtype` can make a state half precision.

        In half precision a count ends at 256 or 2048 and sums are rounded. TorchMetrics means to
        guard against it, but misses the conversion of `Module.to(dtype)`.
        """
        own = self.__dict__
        names = *self._defaults, *_OTHERS_OF_ITS_DTYPE
        kept = {name: own[name] for name in names if name in own}
        defaults = self._defaults.copy()
        this = super()._apply(fn, exclude_state)
        if not self._dtype_convert:
            for holder, wide in ((self._defaults, defaults), (own, kept)):
                for name, old in wide.items():
                    holder[name] = _not_narrower(old, holder[name])
        # Hidden states follow to another device, but keep their dtype.
        for name, default in self._hidden_defaults.items():
            device = fn(default).device
            self._keep_hidden_default(name, default.to(device))
            self.__dict__[name] = self.__dict__[name].to(device)
        return this

    def sync(
        self,
        dist_sync_fn: Callable[..., Any] | None = None,
        process_group: Any = None,
        should_sync: bool = True,
        distributed_available: Callable[[], bool] | None = None,
    ) -> None:
        """Replaces the states by those reduced over all processes, until `unsync`.

        The reduction is ordered on the current stream; the host does not wait, except for list
        states, whose lengths have to be exchanged first.
        """
        if self._is_synced and should_sync:
            raise TorchMetricsUserError("The Metric has already been synced.")
        available = distributed_available or self.distributed_available_fn
        if not should_sync or not (callable(available) and available()):
            return
        self._cache = {
            name: list(state) if isinstance(state, list) else state
            for name, state in self._states_to_reduce().items()
        }
        self._sync_dist(dist_sync_fn or gather_all_tensors, process_group)
        self._is_synced = True

    def _sync_dist(
        self, dist_sync_fn: Callable[..., Any] = gather_all_tensors, process_group: Any = None
    ) -> None:
        group = process_group or self.process_group
        if dist_sync_fn is not gather_all_tensors:
            super()._sync_dist(dist_sync_fn, process_group)
            for name, state in self._hidden_states().items() if self._validates else ():
                self.__dict__[name] = torch.stack(dist_sync_fn(state, group=group)).sum(0)
            return
        reductions = self._reductions_of_states()
        states = self._states_to_reduce()
        self.__dict__.update(_state_reduction.reduce_states(states, reductions, self.device, group))

    @contextmanager
    def sync_context(
        self,
        dist_sync_fn: Callable[..., Any] | None = None,
        process_group: Any = None,
        should_sync: bool = True,
        should_unsync: bool = True,
        distributed_available: Callable[[], bool] | None = None,
    ) -> Iterator[None]:
        """Inside, the states of all processes; afterwards this one's own, also after an error."""
        # Through `super`, as another base of a user's class may sync in its own way.
        with super().sync_context(
            dist_sync_fn=dist_sync_fn,
            process_group=process_group,
            should_sync=should_sync,
            should_unsync=should_unsync,
            distributed_available=distributed_available,
        ):
            try:
                yield
            except BaseException:
                self.unsync(should_unsync=self._is_synced and should_unsync)
                raise


def _device_of(states: dict[str, Any]) -> torch.device | None:
    pieces = (
        x for state in states.values() for x in (state if isinstance(state, list) else [state])
    )
    return next((piece.device for piece in pieces), None)


# What TorchMetrics converts with the states: the cached values of `compute` and `forward`, and what
# `Metric.dtype` returns.
_OTHERS_OF_ITS_DTYPE = "_computed", "_forward_cache", "_dtype"


def is_half(dtype: torch.dtype) -> bool:
    """Whether the dtype is too narrow for sums of many batches."""
    return dtype in (torch.float16, torch.bfloat16)


def _not_narrower(old: Any, new: Any) -> Any:
    """The converted state, list of pieces or value, or the old one if it has become half."""
    if type(new) in (list, tuple):
        return type(new)(_not_narrower(*each) for each in zip(old, new, strict=True))
    if isinstance(new, Tensor):
        became_half = is_half(new.dtype) and not is_half(old.dtype)
        return old.to(new.device) if became_half else new
    if isinstance(new, torch.dtype):
        return old if is_half(new) and not is_half(old) else new
    return new


def _can_hold(state: Tensor, default: Tensor) -> bool:
    """Whether the default's values can be written into the state's storage."""
    return can_take(state, default) and 0 not in state.stride()


def can_take(total: Tensor, more: Tensor) -> bool:
    """Whether a batch's state can be added in place: it needs the same shape and dtype."""
    usable = (
        is_dynamo_compiling()  # cannot ask the following; our own updates do not ask either
        or torch.is_inference_mode_enabled()
        or not total.is_inference()
    )
    return usable and total.shape == more.shape and total.dtype == more.dtype


def _class_of_torchmetrics(ours: type) -> type | None:
    """The TorchMetrics class that one of ours replaces; None for a user's subclass of ours."""
    if not ours.__module__.startswith("syncfree."):
        return None
    return next(c for c in ours.__mro__ if c.__module__.startswith("torchmetrics."))


def require_list(name: str, state: object) -> None:
    """Raises if a list state is none, for example because `sync` has made a tensor of it."""
    if not isinstance(state, list):
        raise TypeError(
            f"Expected state `{name}` to be a list, but got {type(state).__name__}. While a metric "
            "is synced it takes no batch: call `unsync()` before. Where `dim` or `reduction` was "
            "changed, make a new metric."
        )


def settle(old: Any, new: Any) -> Any:
    """The new state in the old one's storage if that can hold it, else in storage of its own."""
    if isinstance(new, list):
        return list(new)
    with torch.no_grad():
        if not isinstance(old, Tensor) or old.is_meta:  # a meta tensor holds no numbers
            return of_any_mode(new, new.device)
        return old.copy_(new) if _can_hold(old, new) else of_any_mode(new, old.device)
