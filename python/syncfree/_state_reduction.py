"""Reduces metric states over processes, in one collective for each dtype and reduction.

The pieces of a list state are the tensors in it. They are gathered in slots: a slot takes at most
one tensor from each process, in shapes and dtypes that may differ.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torchmetrics.utilities.data import (
    dim_zero_cat,
    dim_zero_max,
    dim_zero_mean,
    dim_zero_min,
    dim_zero_sum,
)
from torchmetrics.utilities.distributed import gather_all_tensors

Key = TypeVar("Key", bound=Hashable)
State = Tensor | list[Tensor]

_OPS: dict[Any, Any] = {
    dim_zero_sum: dist.ReduceOp.SUM,
    dim_zero_mean: dist.ReduceOp.SUM,
    dim_zero_max: dist.ReduceOp.MAX,
    dim_zero_min: dist.ReduceOp.MIN,
}


def by_process(pieces: list[Tensor]) -> list[Tensor]:
    """The reduction of a list that stays a list: of one joined piece per process."""
    return pieces


_OF_JOINED = dim_zero_cat, by_process

_HALVES = torch.float16, torch.bfloat16
_MOST_DIMS = 8
_DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex128,
)


def reduce_states(
    states: Mapping[Key, State],
    reductions: Mapping[Key, Any],
    device: torch.device,
    group: Any = None,
) -> dict[Key, State]:
    """The states reduced over all processes, in new tensors.

    Sums and means of one dtype travel in one all-reduce, maxima in another and minima in a third,
    all ordered on the current stream; the host does not wait. The lengths of list states are
    unknown to other processes, so they are exchanged and read first: one wait for all lists
    together, and another for the numbers of pieces if there are lists without a reduction. These
    keep their pieces, in TorchMetrics' order: the first of each process, then the second of each
    that has one. A process outside the group keeps its own states.
    """
    if dist.get_rank(group) < 0:
        return dict(states)
    result: dict[Key, State] = {}
    packs: dict[tuple[Any, torch.dtype], list[Key]] = {}
    lists: dict[Key, list[Tensor]] = {}
    for key, state in states.items():
        reduction = reductions[key]
        if isinstance(state, list):
            if reduction is None or reduction in _OF_JOINED:
                lists[key] = state
            else:  # a custom reduction, which gets the pieces as TorchMetrics gathers them
                pieces = [piece for one in state for piece in gather_all_tensors(one, group)]
                result[key] = reduction(pieces) if pieces else []
        elif reduction in _OPS:
            pack = _OPS[reduction], _summed_dtype(state, reduction)
            packs.setdefault(pack, []).append(key)
        else:
            stacked = torch.stack(_gather(state, group))
            result[key] = stacked if reduction is None else reduction(stacked)
    for (op, dtype), keys in packs.items():
        reduced = _all_reduce({key: states[key] for key in keys}, dtype, op, group)
        for key, state in reduced.items():
            own: Any = states[key]
            is_mean = reductions[key] is dim_zero_mean
            whole = state / dist.get_world_size(group) if is_mean else state
            result[key] = whole.to(own.dtype) if own.dtype in _HALVES else whole
    for key, pieces in _whole_lists(lists, reductions, device, group).items():
        reduction = reductions[key]
        result[key] = pieces if reduction is None or not pieces else reduction(pieces)
    return result


def _summed_dtype(state: Tensor, reduction: Any) -> torch.dtype:
    """The dtype to reduce in, as in torch.sum and torch.mean: narrow ones would overflow."""
    if state.dtype in _HALVES and _OPS[reduction] == dist.ReduceOp.SUM:
        return torch.float32
    whole = not (state.is_floating_point() or state.is_complex())
    return torch.int64 if whole and reduction is dim_zero_sum else state.dtype


def _all_reduce(
    states: dict[Key, Any], dtype: torch.dtype, op: Any, group: Any
) -> dict[Key, Tensor]:
    packed = torch.cat([state.reshape(-1).to(dtype) for state in states.values()])
    if op == dist.ReduceOp.SUM or not dtype.is_floating_point:
        dist.all_reduce(packed, op=op, group=group)
    else:  # the result of gloo and NCCL for NaN depends on the order: a flag is sent for each value
        flag = 1 if op == dist.ReduceOp.MAX else -1
        packed = torch.stack([packed, packed.isnan() * flag])
        dist.all_reduce(packed, op=op, group=group)
        packed = packed[0].where(packed[1] == 0, torch.nan)
    pieces = packed.split([state.numel() for state in states.values()])
    return {k: piece.view(states[k].shape) for k, piece in zip(states, pieces, strict=True)}


def _gather(state: Tensor, group: Any) -> list[Tensor]:
    gathered = [torch.empty_like(state) for _ in range(dist.get_world_size(group))]
    dist.all_gather(gathered, state.contiguous(), group=group)
    return gathered


def _whole_lists(
    lists: Mapping[Key, list[Tensor]],
    reductions: Mapping[Key, Any],
    device: torch.device,
    group: Any,
) -> dict[Key, list[Tensor]]:
    """The pieces of all processes; each joins its own first, unless there is no reduction."""
    kept = {key: pieces for key, pieces in lists.items() if reductions[key] is None}
    slots: list[tuple[Key, Tensor | None]] = [
        (key, dim_zero_cat(pieces) if pieces else None)
        for key, pieces in lists.items()
        if key not in kept
    ]
    if kept:
        slots += _slots_of_pieces(kept, device, group)
    result: dict[Key, list[Tensor]] = {key: [] for key in lists}
    if slots:
        gathered = _gather_slots([own for _, own in slots], device, group)
        for (key, _), pieces in zip(slots, gathered, strict=True):
            result[key] += pieces
    return result


def _slots_of_pieces(
    lists: Mapping[Key, list[Tensor]], device: torch.device, group: Any
) -> list[tuple[Key, Tensor | None]]:
    """A slot for each piece; a list has as many slots as the process with the most pieces needs."""
    most = torch.tensor([len(pieces) for pieces in lists.values()], device=device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX, group=group)
    return [
        (key, pieces[i] if i < len(pieces) else None)
        for (key, pieces), slots in zip(lists.items(), most.tolist(), strict=True)
        for i in range(slots)
    ]


def _describe(own: Tensor | None) -> list[int]:
    """Dtype, number of dimensions and sizes; dtype -1 if this process has no tensor in the slot."""
    if own is None:
        return [-1, 0, *[0] * _MOST_DIMS]
    if own.ndim > _MOST_DIMS:
        raise ValueError(
            f"Expected list states of at most {_MOST_DIMS} dimensions, but got shape "
            f"{tuple(own.shape)}."
        )
    return [_DTYPES.index(own.dtype), own.ndim, *own.shape, *[0] * (_MOST_DIMS - own.ndim)]


def _gather_slots(
    slots: list[Tensor | None], device: torch.device, group: Any
) -> list[list[Tensor]]:
    """For each slot, the tensors of all processes that have one, in the order of their ranks."""
    own = torch.tensor([_describe(x) for x in slots], device=device)
    descriptions = torch.stack(_gather(own, group)).tolist()  # the host waits here
    result: list[dict[int, Tensor]] = [{} for _ in slots]
    for code in sorted({slot[0] for rank in descriptions for slot in rank if slot[0] >= 0}):
        dtype = _DTYPES[code]
        members = [i for i in range(len(slots)) if any(d[i][0] == code for d in descriptions)]
        shapes = [[tuple(d[i][2 : 2 + d[i][1]]) for i in members] for d in descriptions]
        has = [[d[i][0] == code for i in members] for d in descriptions]
        counts = [
            [torch.Size(shape).numel() * there for shape, there in zip(*rank, strict=True)]
            for rank in zip(shapes, has, strict=True)
        ]
        buffer = torch.zeros(max(map(sum, counts)), dtype=dtype, device=device)
        mine = [x.reshape(-1) for i in members if (x := slots[i]) is not None and x.dtype == dtype]
        if mine:
            flat = torch.cat(mine).to(device)
            buffer[: flat.numel()] = flat
        for rank, received in enumerate(_gather(buffer, group)):
            pieces = received[: sum(counts[rank])].split(counts[rank])
            for slot, i in enumerate(members):
                if has[rank][slot]:
                    result[i][rank] = pieces[slot].view(shapes[rank][slot])
    return [[slot[rank] for rank in sorted(slot)] for slot in result]
