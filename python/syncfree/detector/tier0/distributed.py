"""Distributed programs with one GPU for each process.

Process groups that ask for NCCL get gloo, which moves the same numbers between CPU tensors.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from syncfree.detector.tier0.recording import record
from syncfree.detector.tier0.replacing import Replacements


@dataclass
class _Groups:
    """Whether gloo replaces NCCL, which is known once a group was made."""

    stand_in: bool = False


def install(replace: Replacements) -> None:
    """Replaces functions of `torch.distributed`, where torch was built with it."""
    if not dist.is_available():
        return
    core, groups = dist.distributed_c10d, _Groups()
    for name in ("init_process_group", "new_group"):
        replace.put(core, name, _with_gloo(getattr(core, name), groups))
    replace.wrap(core, "barrier", partial(_barrier, groups))
    replace.put(core, "is_nccl_available", lambda: True)
    replace.wrap(core, "_get_object_coll_device", partial(_object_device, groups))
    replace.put(torch.nn.modules.batchnorm, "sync_batch_norm", _LocalStatistics)
    replace.wrap(torch.multiprocessing, "spawn", _in_place)


def _with_gloo(old: Callable[..., Any], groups: _Groups) -> Callable[..., Any]:
    place = list(signature(old).parameters).index("backend")

    @wraps(old)
    def make(*args: Any, **kwargs: Any) -> Any:
        given = list(args)
        asked = given[place] if len(given) > place else kwargs.get("backend")
        # Without a backend, the accelerator decides it for the first group, and further groups use
        # that of the first.
        first = old.__name__ == "init_process_group"
        if (asked is None and first) or (isinstance(asked, str) and "nccl" in asked.lower()):
            groups.stand_in = True
            if len(given) > place:
                given[place] = "gloo"
            else:
                kwargs["backend"] = "gloo"
        kwargs.pop("device_id", None)
        made = old(*given, **kwargs)
        _keep(dist.group.WORLD if first else made)
        return made

    return make


def _keep(group: object) -> None:
    """Keeps a group alive until the process ends, because its destructor may deadlock.

    The destructor waits for gloo's threads. These release tensors, which all have Python objects in
    tier 0, and so need the GIL, which the thread that drops the last reference to a network holds.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def _barrier(groups: _Groups, old: Callable[..., Any]) -> Callable[..., Any]:
    """The barrier of gloo would make a tensor on the GPU, so an all-reduce replaces it."""

    @wraps(old)
    def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
        if not groups.stand_in:
            return old(group, async_op, device_ids)
        record(
            "torch.distributed.barrier",
            "The host waits until the GPUs of all processes have reached the barrier.",
        )
        return dist.all_reduce(torch.zeros(1, device="cpu"), group=group, async_op=async_op)

    return barrier


def _object_device(groups: _Groups, old: Callable[..., Any]) -> Callable[..., Any]:
    """NCCL moves pickled objects through the GPU, and the host reads their sizes there."""

    @wraps(old)
    def device(group: Any = None) -> Any:
        return "cuda" if groups.stand_in else old(group)

    return device


def _in_place(old: Callable[..., Any]) -> Callable[..., Any]:
    """Runs a `spawn` of one process in place: a child process would see no virtual device."""

    @wraps(old)
    def spawn(
        fn: Callable[..., Any],
        args: Any = (),
        nprocs: int = 1,
        join: bool = True,
        *rest: Any,
        **kwargs: Any,
    ) -> Any:
        if nprocs != 1 or not join:
            return old(fn, args, nprocs, join, *rest, **kwargs)
        try:
            fn(0, *args)
        except SystemExit as end:
            if end.code:
                raise
        return None

    return spawn


class _LocalStatistics:
    """SyncBatchNorm of several ranks, whose kernels the CPU lacks: each uses its own statistics."""

    @staticmethod
    def apply(
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor | None,
        variance: Tensor | None,
        eps: float,
        momentum: float,
        *_: Any,
    ) -> Tensor:
        for _of in ("counts", "means", "deviations"):
            record(
                "aten::index",
                "The ranks without samples are left out, so the host has to wait for their count.",
                op="aten::index",
            )
        return F.batch_norm(x, mean, variance, weight, bias, True, momentum, eps)
