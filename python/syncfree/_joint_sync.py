"""Reduces the states of many metrics over processes together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torchmetrics import Metric

from syncfree._compute_groups import all_reductions, all_states, is_usual
from syncfree._state_reduction import reduce_states
from syncfree._states import StatesInPlace


def reduce_together(
    metrics: Mapping[str, Metric], teams: Iterable[list[str]] = ()
) -> dict[str, dict[str, Any]]:
    """The states reduced over all processes, for those metrics whose `compute` would sync.

    A state that several metrics hold travels once. Metrics that sync in a way of their own
    (``dist_sync_fn``, overridden methods) or not at all are left out.

    Args:
        metrics: By name.
        teams: The compute groups that the first batch will form, as names with the leader first.
            Members send the leader's states, because all processes have to send the same, and
            those that have seen a batch share states already.
    """
    places: dict[Any, list[str]] = {}
    for name, metric in metrics.items():
        if _would_sync(metric):
            places.setdefault((metric.process_group, metric.device), []).append(name)
    if not places:
        return {}
    leaders = {name: all_states(metrics[team[0]]) for team in teams for name in team}
    result: dict[str, dict[str, Any]] = {}
    for (group, device), names in places.items():
        states: dict[Any, Any] = {}
        reductions: dict[Any, Any] = {}
        keys: dict[str, dict[str, Any]] = {name: {} for name in names}
        for name in names:
            reduction_of = all_reductions(metrics[name])
            shared = leaders.get(name, {})
            for attribute, own in all_states(metrics[name]).items():
                state = shared.get(attribute, own)
                reduction = reduction_of[attribute]
                key = id(state), reduction
                states[key], reductions[key], keys[name][attribute] = state, reduction, key
        reduced = reduce_states(states, reductions, device, group)
        for name in names:
            result[name] = {attribute: reduced[key] for attribute, key in keys[name].items()}
    return result


def _would_sync(metric: Metric) -> bool:
    available = metric.distributed_available_fn
    return bool(
        metric._computed is None
        and metric._defaults
        and metric._to_sync
        and not metric._is_synced
        and metric.dist_sync_fn is None
        and is_usual(metric, "sync", "unsync", "sync_context", "_sync_dist", "_wrap_compute")
        and _next_sync_context(metric).__module__ == "torchmetrics.metric"
        and callable(available)
        and available()
    )


def _next_sync_context(metric: Metric) -> Callable[..., Any]:
    """The `sync_context` that ours calls; another base of a user's class may define one."""
    if isinstance(metric, StatesInPlace):
        return super(StatesInPlace, metric).sync_context
    return metric.sync_context


@contextmanager
def synced(metric: Metric, states: dict[str, Any] | None) -> Iterator[None]:
    """Inside, the metric has these states in place of its own, for a call of `compute`."""
    if states is None:
        yield
        return
    metric._cache = {
        name: list(state) if isinstance(state, list) else state
        for name, state in all_states(metric).items()
    }
    to_sync, metric._to_sync = metric._to_sync, False
    for name, state in states.items():
        setattr(metric, name, state)
    metric._is_synced = True
    try:
        yield
    finally:
        metric._to_sync = to_sync
        if metric._is_synced:  # still, because `compute` raised or returned its cached value
            metric.unsync()
