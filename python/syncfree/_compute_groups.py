"""Which metrics of a collection may share one update, known without a look at their values."""

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

# What each `update` reads of its metric, apart from the states, which all begin at zero or empty,
# and from `validate_args`, which does not change what it counts.
# Metrics with any other `update` are left alone: that costs time, a wrong guess costs the answer.
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

# Methods that a subclass from elsewhere may define without a change to what `update` does.
_AFTER_UPDATE = {"__init__", "compute", "plot"}


def group_alike(metrics: Mapping[str, Metric]) -> list[list[str]]:
    """The names, together where an update of the first does for all.

    That is one that checks its inputs if any does, and one of ours, which are faster, if it can be.
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
    """Equal for metrics that are updated alike; None where that is not known."""
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
    """The `update` of TorchMetrics' class that the metric is, or that ours stands for."""
    bound = getattr(metric.update, "__wrapped__", None)
    if getattr(bound, "__func__", None) is not type(metric).update:
        return None  # replaced on this one object
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
        return None  # the shapes of the states tell what the update makes of it
    if isinstance(value, Tensor):
        # On a GPU the host would wait for its values.
        return tuple(value.tolist()) if value.device.type == "cpu" else id(value)
    return value if isinstance(value, Hashable) else id(value)


def is_usual(metric: Metric, *methods: str) -> bool:
    """Whether these methods of the metric are those of the base classes."""
    places = ("torchmetrics.metric", "syncfree._metric", "syncfree._states")
    return all(getattr(type(metric), method).__module__ in places for method in methods)


def all_states(metric: Metric) -> dict[str, Any]:
    """The states, with those of our metrics that TorchMetrics does not know of."""
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
    """While the leader is updated: members that hold its states mean to see them grow.

    Before the first batch they hold their own.
    """
    own = leader.__dict__
    # Only ours ask who holds them, and not in compiled code.
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
    # A microsecond apiece through nn.Module and Metric, which look at each attribute that is set.
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
    """Keeps together what counts the same and has: nothing yet, or everything in the same states.

    What was ``loaded`` counts as nothing: `split_by_saved` has told it apart.
    """
    histories: dict[Hashable, list[str]] = {}
    for name in names:
        metric = metrics[name]
        seen = tuple(map(id, metric.metric_state.values())) if _has_counts(metric, loaded) else ()
        key = metric.device, seen, _options_now(metric)
        histories.setdefault(key, []).append(name)
    return list(histories.values())


def _options_now(metric: Metric) -> Hashable:
    """What may have been set since `group_alike` compared; tensors are not looked at again."""
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
    # TorchMetrics' do not tell of a merge. On a GPU the host would wait to see it in their values.
    pairs = [(getattr(metric, name), default) for name, default in metric._defaults.items()]
    return any(
        bool(state)
        if isinstance(state, list)
        else state.device.type == "cpu" and not is_dynamo_compiling() and not _equal(state, default)
        for state, default in pairs
    )


def split_by_saved(
    metrics: Mapping[str, Metric], names: Iterable[str], saved: Mapping[str, Any], prefix: str
) -> list[list[str]]:
    """Keeps together what was saved with the same values.

    Of a checkpoint on the GPU they are read all at once, in one wait.
    """
    groups: list[tuple[list[str], list[Any]]] = []
    found = {
        name: [saved.get(f"{prefix}{name}.{state}") for state in metrics[name]._defaults]
        for name in names
    }
    if len(found) > 1:
        found = _on_host(found)
    for name, states in found.items():
        for members, theirs in groups:
            if _equal(states, theirs):
                members.append(name)
                break
        else:
            groups.append(([name], states))
    return [members for members, _ in groups]


def _on_host(found: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """The same with copies in host memory, in one transfer for each device and dtype."""
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
    """Gives each a copy of what one before it holds too, for updates in place."""
    held: list[Any] = []
    for leader in leaders:
        for name, state in all_states(leader).items():
            # Not by `id`: code compiled for that is compiled again after each reset.
            if any(state is other for other in held):
                is_list = isinstance(state, list)
                setattr(leader, name, list(state) if is_list else of_any_mode(state, state.device))
            held.append(getattr(leader, name))
