"""Finds the metrics of a collection that can share one update, without reading their values.

A compute group is a list of metrics whose updates do the same. The first of them, its leader, is
updated for all; the others, its members, then hold the leader's states.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torchmetrics import Metric
from torchmetrics.classification import (
    BinaryConfusionMatrix,
    BinaryPrecisionRecallCurve,
    BinaryStatScores,
    MulticlassConfusionMatrix,
    MulticlassPrecisionRecallCurve,
    MulticlassStatScores,
    MultilabelConfusionMatrix,
    MultilabelPrecisionRecallCurve,
    MultilabelStatScores,
)

from syncfree._metric import SyncFreeMetric
from syncfree._states import of_any_mode

# The options that each `update` reads. Left out are `validate_args`, which does not change what is
# counted, and the states, which all begin at zero or empty.
# Metrics with any other `update` stay alone: that costs time, but a wrong guess costs the answer.
UPDATES: dict[Any, tuple[str, ...]] = {
    BinaryStatScores.update: ("threshold", "multidim_average", "ignore_index"),
    MulticlassStatScores.update: (
        "num_classes",
        "top_k",
        "average",
        "multidim_average",
        "ignore_index",
    ),
    MultilabelStatScores.update: ("num_labels", "threshold", "multidim_average", "ignore_index"),
    BinaryConfusionMatrix.update: ("threshold", "ignore_index"),
    MulticlassConfusionMatrix.update: ("num_classes", "ignore_index"),
    MultilabelConfusionMatrix.update: ("num_labels", "threshold", "ignore_index"),
    BinaryPrecisionRecallCurve.update: ("thresholds", "normalization", "ignore_index"),
    MulticlassPrecisionRecallCurve.update: ("thresholds", "num_classes", "average", "ignore_index"),
    MultilabelPrecisionRecallCurve.update: ("thresholds", "num_labels", "ignore_index"),
}

# Methods that a third-party subclass may define without changing what `update` does.
_AFTER_UPDATE = {"__init__", "compute", "plot"}


def group_alike(metrics: Mapping[str, Metric]) -> list[list[str]]:
    """The names in compute groups, leader first.

    The leader validates its inputs if any metric of the group does. Among the metrics left it is
    one of ours if possible, because ours are faster.
    """
    groups: dict[Hashable, list[str]] = {}
    for name, metric in metrics.items():
        recipe = _recipe(metric)
        groups.setdefault(name if recipe is None else recipe, []).append(name)
    for names in groups.values():
        names.sort(key=lambda name: _rank(metrics[name]))
    return list(groups.values())


def _rank(metric: Metric) -> tuple[bool, bool]:
    return not getattr(metric, "validate_args", False), not isinstance(metric, SyncFreeMetric)


def _recipe(metric: Metric) -> Hashable | None:
    """A key that is equal for metrics with equal updates; None if the update is unknown."""
    update = _torchmetrics_update(metric)
    if update not in UPDATES or not metric._defaults:
        return None
    options = (_comparable(metric, name) for name in UPDATES[update])
    states = (
        (name, None if isinstance(default, list) else (default.shape, default.dtype))
        for name, default in metric._defaults.items()
    )
    reductions = (metric._reductions[name] for name in metric._defaults)
    return update, *options, *states, *reductions, metric.compute_on_cpu


def _torchmetrics_update(metric: Metric) -> Any:
    """The `update` of the TorchMetrics class that the metric is an instance of, or replaces."""
    bound = getattr(metric.update, "__wrapped__", None)
    if getattr(bound, "__func__", None) is not type(metric).update:
        return None  # replaced on this object
    for kind in type(metric).__mro__:
        origin = kind.__module__.partition(".")[0]
        if "update" in vars(kind) and origin == "torchmetrics":
            return vars(kind)["update"]
        if origin not in ("torchmetrics", "syncfree"):
            methods = {name for name, value in vars(kind).items() if callable(value)}
            if methods - _AFTER_UPDATE:
                return None
    return None


def _comparable(metric: Metric, option: str) -> Hashable:
    value = getattr(metric, option, None)
    if option == "average" and isinstance(metric, MulticlassStatScores):
        return None  # its effect on the update shows in the shapes of the states
    if isinstance(value, Tensor):
        # Reading values on a GPU would make the host wait.
        return tuple(value.tolist()) if value.device.type == "cpu" else id(value)
    return value if isinstance(value, Hashable) else id(value)


def is_usual(metric: Metric, *methods: str) -> bool:
    """Whether none of these methods of the base classes is overridden."""
    places = ("torchmetrics.metric", "syncfree._metric", "syncfree._states")
    return all(getattr(type(metric), method).__module__ in places for method in methods)


def all_states(metric: Metric) -> dict[str, Any]:
    """All states, including the hidden ones of our metrics (see `_states`)."""
    if isinstance(metric, SyncFreeMetric):
        return metric._states_to_reduce()
    return metric.metric_state


def all_reductions(metric: Metric) -> dict[str, Any]:
    """How each of `all_states` is reduced."""
    if isinstance(metric, SyncFreeMetric):
        return metric._reductions_of_states()
    return metric._reductions


@contextmanager
def led(leader: Metric, members: Sequence[Metric]) -> Iterator[None]:
    """For an update of the leader: it may write states in place that its members hold too.

    Before the first batch members hold states of their own, so holders are counted each time.
    """
    own = leader.__dict__
    # Only our metrics check who holds their states, and not in compiled code.
    if members and isinstance(leader, SyncFreeMetric) and not is_dynamo_compiling():
        name = next(iter(leader._defaults))
        holders = (member for member in members if member.__dict__.get(name) is own[name])
        own["_followers"] = sum(1 for _ in holders)
    try:
        yield
    finally:
        own["_followers"] = 0


def share(leader: Metric, member: Metric, copy: bool = False) -> None:
    """Lets ``member`` hold the states of ``leader``, or copies of them."""
    held = all_states(member)
    for name, state in all_states(leader).items():
        if copy:
            setattr(member, name, deepcopy(state))
        elif held.get(name) is not state:
            setattr(member, name, state)
    # Setting it through nn.Module and Metric, which inspect each attribute, takes a microsecond.
    member.__dict__["_update_count"] = leader._update_count


def forget(leader: Metric, member: Metric) -> None:
    """Resets ``member``, which is going to hold the states of ``leader`` again."""
    if all_states(leader).keys() != all_states(member).keys():
        member.reset()
        return
    states = dict.fromkeys(all_states(member))
    member.__dict__.update(states, _update_count=0, _forward_cache=None, _computed=None)
    member.__dict__.update(_cache=None, _is_synced=False, _is_merged=False, _is_loaded=False)


def split_by_history(
    metrics: Mapping[str, Metric], names: Iterable[str], loaded: bool
) -> list[list[str]]:
    """Splits a group, keeping metrics together that have no counts yet or hold the same states.

    They must also still agree in device and options. If ``loaded``, counts from a checkpoint are
    ignored: `split_by_saved` has compared them.
    """
    histories: dict[Hashable, list[str]] = {}
    for name in names:
        metric = metrics[name]
        seen = tuple(map(id, metric.metric_state.values())) if _has_counts(metric, loaded) else ()
        key = metric.device, seen, _options_now(metric)
        histories.setdefault(key, []).append(name)
    return list(histories.values())


def _options_now(metric: Metric) -> Hashable:
    """Options that may have changed since `group_alike`; tensors are not compared again."""
    names = UPDATES.get(_torchmetrics_update(metric), ())
    options = (
        _comparable(metric, name)
        for name in names
        if not isinstance(getattr(metric, name, None), Tensor)
    )
    shapes = (getattr(default, "shape", None) for default in metric._defaults.values())
    return *options, *shapes


def _has_counts(metric: Metric, loaded: bool) -> bool:
    """Whether a metric has seen something, or was merged with one that has."""
    if metric._update_count or metric.__dict__.get("_is_merged"):
        return True
    if loaded:
        return False
    # TorchMetrics' metrics do not record a merge. On the CPU it shows in their values; on a GPU the
    # host would have to wait for these.
    pairs = [(getattr(metric, name), default) for name, default in metric._defaults.items()]
    return any(
        bool(state)
        if isinstance(state, list)
        else state.device.type == "cpu" and not is_dynamo_compiling() and not _equal(state, default)
        for state, default in pairs
    )


def split_by_saved(
    metrics: Mapping[str, Metric],
    groups: Sequence[Sequence[str]],
    saved: Mapping[str, Any],
    prefix: str,
) -> list[list[str]]:
    """Splits groups, keeping metrics together whose states have equal values in a checkpoint.

    Values on a GPU are read in one transfer for each device and dtype.
    """
    found = _on_host(
        {
            name: [saved.get(f"{prefix}{name}.{state}") for state in metrics[name]._defaults]
            for names in groups
            for name in names
            if len(names) > 1
        }
    )
    return [part for names in groups for part in _split_by_states(names, found)]


def _split_by_states(names: Sequence[str], found: Mapping[str, list[Any]]) -> list[list[str]]:
    """Splits a group, keeping metrics together whose states are equal."""
    parts: list[list[str]] = []
    for name in names:
        for part in parts:
            if _equal(found[name], found[part[0]]):
                part.append(name)
                break
        else:
            parts.append([name])
    return parts


def _on_host(found: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """The same states in host memory, with one transfer for each device and dtype."""
    far: dict[Hashable, list[Tensor]] = {}
    for state in (state for states in found.values() for state in states):
        if isinstance(state, Tensor) and state.device.type not in ("cpu", "meta"):
            far.setdefault((state.device, state.dtype), []).append(state)
    near: dict[int, Tensor] = {}
    for states in far.values():
        flat = torch.cat([state.detach().reshape(-1) for state in states]).cpu()
        pieces = flat.split([state.numel() for state in states])
        for state, piece in zip(states, pieces, strict=True):
            near[id(state)] = piece.reshape(state.shape)
    return {
        name: [near.get(id(state), state) for state in states] for name, states in found.items()
    }


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and a.device == b.device and bool((a == b).all())
    return a is b


def unshare(leaders: Iterable[Metric]) -> None:
    """Gives each metric a copy of states that one before it holds too, for updates in place."""
    held: list[Any] = []
    for leader in leaders:
        for name, state in all_states(leader).items():
            # Not by `id`: code compiled for one value of it is compiled again after each reset.
            if any(state is other for other in held):
                is_list = isinstance(state, list)
                setattr(leader, name, list(state) if is_list else of_any_mode(state, state.device))
            held.append(getattr(leader, name))
