"""How many pieces of work a call puts on the GPU."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch._C._autograd import DeviceType


def count_launches(call: Callable[[], object], calls: int = 10) -> float:
    """Kernels, copies and fills that a call puts on the GPU, counted by `torch.profiler`.

    The profiler stays attached to the driver for the rest of the process and makes launches
    slower, so measure times before.

    Args:
        call: The function.
        calls: The number of calls over which to take the mean.
    """
    call()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
    seen = sum(event.device_type == DeviceType.CUDA for event in profile.events())
    return float(seen / calls)
