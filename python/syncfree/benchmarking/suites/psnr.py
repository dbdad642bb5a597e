"""PSNR: syncfree beside TorchMetrics, plain torch and torch.compile."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from syncfree.benchmarking.suites.peers import is_there
from syncfree.benchmarking.suites.workload import (
    F32,
    LARGE,
    MEDIUM,
    ON_CPU,
    SMALL,
    U8,
    Call,
    Makers,
    Workload,
    images,
    size_name,
    top_of,
)


def workload(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> Workload:
    """PSNR of one batch."""
    from syncfree.functional import peak_signal_noise_ratio

    x, y = images(shape, dtype, device)
    top = top_of(dtype)

    def plain(a: Tensor, b: Tensor) -> Tensor:
        return 10 * torch.log10(top * top / ((a.float() - b.float()) ** 2).mean())

    contenders: dict[str, Call] = {"syncfree": lambda: peak_signal_noise_ratio(x, y, top)}
    if is_there("torchmetrics"):
        import torchmetrics.functional.image as tm

        contenders["torchmetrics"] = lambda: tm.peak_signal_noise_ratio(x, y, data_range=top)
    contenders["plain torch"] = lambda: plain(x, y)
    if device == "cuda":
        compiled = torch.compile(plain)
        contenders["torch.compile"] = lambda: compiled(x, y)
    return Workload(f"PSNR {size_name(shape, dtype)}", device, 2 * x.nbytes, contenders)


def makers(device: str) -> Makers:
    """The workloads of this suite."""
    if device == "cpu":
        yield "psnr", partial(workload, ON_CPU, F32, device)
        return
    for shape in (SMALL, MEDIUM, LARGE):
        for dtype in (F32, U8) if shape == LARGE else (F32,):
            yield f"psnr-{size_name(shape, dtype)}", partial(workload, shape, dtype, device)
