"""SSIM and MS-SSIM beside TorchMetrics' and pytorch-msssim's."""

from __future__ import annotations

from functools import partial

import torch

from syncfree.benchmarking.suites.peers import is_there
from syncfree.benchmarking.suites.workload import (
    F16,
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


def ssim(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> Workload:
    """SSIM of one batch; peers compute in the images' type, so they get float32 only."""
    from syncfree.functional import image_quality, structural_similarity_index_measure

    x, y = images(shape, dtype, device)
    top = top_of(dtype)
    contenders: dict[str, Call] = {
        "syncfree": lambda: structural_similarity_index_measure(x, y, data_range=top),
        "syncfree image_quality": lambda: image_quality(x, y, top),
    }
    if dtype == torch.float32 and is_there("torchmetrics"):
        import torchmetrics.functional.image as tm

        contenders["torchmetrics"] = lambda: tm.structural_similarity_index_measure(
            x, y, data_range=top
        )
    if dtype == torch.float32 and is_there("pytorch_msssim"):
        from pytorch_msssim import ssim as peer

        contenders["pytorch-msssim"] = lambda: peer(x, y, data_range=top)
    return Workload(f"SSIM {size_name(shape, dtype)}", device, 2 * x.nbytes, contenders)


def ms_ssim(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> Workload:
    """MS-SSIM of one batch."""
    from syncfree.functional import multiscale_structural_similarity_index_measure

    x, y = images(shape, dtype, device)
    top = top_of(dtype)
    contenders: dict[str, Call] = {
        "syncfree": lambda: multiscale_structural_similarity_index_measure(x, y, data_range=top)
    }
    if dtype == torch.float32 and is_there("torchmetrics"):
        import torchmetrics.functional.image as tm

        contenders["torchmetrics"] = lambda: tm.multiscale_structural_similarity_index_measure(
            x, y, data_range=top
        )
    if dtype == torch.float32 and is_there("pytorch_msssim"):
        from pytorch_msssim import ms_ssim as peer

        contenders["pytorch-msssim"] = lambda: peer(x, y, data_range=top)
    return Workload(f"MS-SSIM {size_name(shape, dtype)}", device, 2 * x.nbytes, contenders)


def ssim_makers(device: str) -> Makers:
    """The workloads of SSIM."""
    if device == "cpu":
        yield "ssim", partial(ssim, ON_CPU, F32, device)
        return
    for shape in (SMALL, MEDIUM, LARGE):
        for dtype in (F32, F16, U8) if shape == LARGE else (F32,):
            yield f"ssim-{size_name(shape, dtype)}", partial(ssim, shape, dtype, device)


def ms_ssim_makers(device: str) -> Makers:
    """The workloads of MS-SSIM."""
    if device == "cpu":
        yield "ms-ssim", partial(ms_ssim, ON_CPU, F32, device)
        return
    for shape in (SMALL, MEDIUM, LARGE):
        for dtype in (F32, F16, U8) if shape == LARGE else (F32,):
            yield f"ms-ssim-{size_name(shape, dtype)}", partial(ms_ssim, shape, dtype, device)
