"""One `forward`, with a single update, for all metrics of a compute group (`_compute_groups`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torchmetrics import Metric
from torchmetrics.utilities.data import (
    dim_zero_max,
    dim_zero_mean,
    dim_zero_min,
    dim_zero_sum,
)

from syncfree._compute_groups import all_reductions, all_states, is_usual, led, share
from syncfree._metric import SyncFreeMetric
from syncfree._metric_checks import are_shared
from syncfree._states import can_take

_REDUCTIONS = (dim_zero_sum, dim_zero_mean, dim_zero_max, dim_zero_min)


def applies(metrics: Sequence[Metric]) -> bool:
    """Whether the values of `forward` can be computed from states that hold the batch alone."""
    leader = metrics[0]
    return all(
        isinstance(leader._defaults.get(name), list) or reduction in _REDUCTIONS
        for name, reduction in leader._reductions.items()
    ) and all(
        metric.full_state_update is False
        and not (metric.dist_sync_on_step or metric._is_synced)
        and not (metric._forward_hooks or metric._forward_pre_hooks)
        and is_usual(metric, "forward", "_forward_reduce_state_update", "_reduce_states")
        for metric in metrics
    )


def forward(metrics: Sequence[Metric], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Adds a batch to the leader, the first metric, and returns the batch's value of each."""
    leader, *members = metrics
    if isinstance(leader, SyncFreeMetric) and not is_dynamo_compiling():
        with led(leader, members):
            if are_shared(leader.__dict__):
                leader._let_go_of_shared_states(in_forward=False)
    totals, count, on_cpu = all_states(leader), _count(leader), leader.compute_on_cpu
    values: list[Any] = []
    batch: dict[str, Any] = {}
    try:
        _set(leader, _empty(leader, totals))
        for metric in metrics:
            _assign(metric, _computed=None, _update_count=0, _to_sync=False, _should_unsync=False)
        _assign(leader, compute_on_cpu=False, _enable_grad=True)
        leader.update(*args, **kwargs)
        batch = all_states(leader)
        count += 1
        for member in members:
            share(leader, member)
        values = [metric.compute() for metric in metrics]
    finally:
        _set(leader, totals)
        _assign(leader, compute_on_cpu=on_cpu, _enable_grad=False, _update_count=count)
        _add(leader, totals, batch)
        if on_cpu:
            leader._move_list_states_to_cpu()
        for metric in metrics:
            _assign(metric, _computed=None, _to_sync=metric.sync_on_compute, _should_unsync=True)
        for member in members:
            share(leader, member)
    for metric, value in zip(metrics, values, strict=True):
        _assign(metric, _forward_cache=value)
    return values


def _count(metric: Metric) -> int:
    """The number of updates; 0 in compiled code, which a growing number would compile again."""
    if is_dynamo_compiling() and dim_zero_mean not in metric._reductions.values():
        return 0
    return metric._update_count


def _assign(metric: Metric, **attributes: Any) -> None:
    own = metric.__dict__
    for name, value in attributes.items():  # torch 2.11 cannot compile `own.update`
        own[name] = value


def _set(metric: Metric, states: dict[str, Any]) -> None:
    for name, state in states.items():
        setattr(metric, name, state)


def _empty(metric: Metric, totals: dict[str, Any]) -> dict[str, Any]:
    """New states with their default values, filled in one launch."""
    result: dict[str, Any] = {}
    empty: list[Tensor] = []
    defaults: list[Tensor] = []
    for name, total in totals.items():
        default = metric._defaults.get(name)
        if isinstance(total, list):
            result[name] = []
        elif isinstance(default, Tensor):
            result[name] = torch.empty_like(default, device=total.device)
            empty.append(result[name])
            defaults.append(default)
        else:
            result[name] = torch.zeros_like(total)  # a hidden state of ours
    if empty:
        torch._foreach_copy_(empty, defaults)
    return result


@torch.no_grad()
def _add(metric: Metric, totals: dict[str, Any], batch: dict[str, Any]) -> None:
    """Adds the batch's states to the totals; sums in one launch, in place for our metrics."""
    names: list[str] = []
    sums: list[Tensor] = []
    summands: list[Tensor] = []
    count, reductions = metric._update_count, all_reductions(metric)
    for name, more in batch.items():
        total, reduction = totals[name], reductions[name]
        if isinstance(total, list):
            total.extend(piece.detach() for piece in more)  # else the list keeps autograd graphs
        elif reduction is dim_zero_mean:
            setattr(metric, name, ((count - 1) * total + more).float() / count)
        elif reduction is dim_zero_max:
            setattr(metric, name, torch.max(total, more))
        elif reduction is dim_zero_min:
            setattr(metric, name, torch.min(total, more))
        elif can_take(total, more):
            names.append(name)
            sums.append(total)
            summands.append(more)
        else:
            setattr(metric, name, total + more)
    if sums and isinstance(metric, SyncFreeMetric):
        torch._foreach_add_(sums, summands)
    elif sums:  # not in place: others may hold these states, and TorchMetrics never writes into one
        _set(metric, dict(zip(names, torch._foreach_add(sums, summands), strict=True)))
