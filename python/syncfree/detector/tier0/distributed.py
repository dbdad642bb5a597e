"""Process groups that ask for NCCL get gloo, which moves the same numbers between CPU tensors."""

from __future__ import annotations

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
    """Whether gloo stands in for NCCL, once a group was asked for."""

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


def _with_gloo(old: Callable[..., Any], groups: _Groups) -> Callable[..., Any]:
    place = list(signature(old).parameters).index("backend")

    @wraps(old)
    def make(*args: Any, **kwargs: Any) -> Any:
        given = list(args)
        asked = given[place] if len(given) > place else kwargs.get("backend")
        if isinstance(asked, str) and "nccl" in asked.lower():
            groups.stand_in = True
            if len(given) > place:
                given[place] = "gloo"
            else:
                kwargs["backend"] = "gloo"
        kwargs.pop("device_id", None)
        return old(*given, **kwargs)

    return make


def _barrier(groups: _Groups, old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def barrier(*args: Any, **kwargs: Any) -> Any:
        if groups.stand_in:
            record(
                "torch.distributed.barrier",
                "The host waits until the GPUs of all processes have reached the barrier.",
            )
            kwargs.pop("device_ids", None)
        return old(*args, **kwargs)

    return barrier


def _object_device(groups: _Groups, old: Callable[..., Any]) -> Callable[..., Any]:
    """NCCL moves pickled objects through the GPU, with reads of their sizes."""

    @wraps(old)
    def device(group: Any = None) -> Any:
        return "cuda" if groups.stand_in else old(group)

    return device


class _LocalStatistics:
    """SyncBatchNorm of several ranks, whose kernels the CPU lacks: each normalizes by its own."""

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
