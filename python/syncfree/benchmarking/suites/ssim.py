"""SSIM and MS-SSIM: syncfree beside TorchMetrics, pytorch-msssim and fused-ssim."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from syncfree.benchmarking.suites.peers import is_there
from syncfree.benchmarking.suites.workload import (
    BF16,
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
    """SSIM of one batch; peers compute in the images' dtype, so they get only float32."""
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
    if dtype == torch.float32 and device == "cuda" and is_there("fused_ssim"):
        from fused_ssim import fused_ssim

        # It pads with zeros where the others reflect or crop, which is the same work.
        contenders["fused-ssim"] = lambda: fused_ssim(x, y, train=False)
    return Workload(f"SSIM {size_name(shape, dtype)}", device, 2 * x.nbytes, contenders)


def uniform_ssim(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> Workload:
    """SSIM with a uniform window of 7x7, scikit-image's default."""
    from syncfree.functional import structural_similarity_index_measure

    x, y = images(shape, dtype, device)
    window: dict[str, Any] = {"gaussian_kernel": False, "kernel_size": 7, "data_range": 1.0}
    contenders: dict[str, Call] = {
        "syncfree": lambda: structural_similarity_index_measure(x, y, **window)
    }
    if is_there("torchmetrics"):
        import torchmetrics.functional.image as tm

        contenders["torchmetrics"] = lambda: tm.structural_similarity_index_measure(x, y, **window)
    return Workload(f"SSIM 7x7 {size_name(shape, dtype)}", device, 2 * x.nbytes, contenders)


def ssim_gradients(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> Workload:
    """SSIM and its gradients to both images; fused-ssim has only the one to the first."""
    from syncfree.functional import structural_similarity_index_measure
    from syncfree.losses import ssim_loss

    x, y = (image.requires_grad_() for image in images(shape, dtype, device))

    def both(ssim: Call) -> Call:
        return lambda: torch.autograd.grad(cast(Tensor, ssim()), (x, y))

    contenders: dict[str, Call] = {
        "syncfree": both(lambda: structural_similarity_index_measure(x, y, data_range=1.0)),
        "syncfree ssim_loss": both(lambda: ssim_loss(x, y)),
    }
    if is_there("torchmetrics"):
        import torchmetrics.functional.image as tm

        contenders["torchmetrics"] = both(
            lambda: tm.structural_similarity_index_measure(x, y, data_range=1.0)
        )
    if is_there("pytorch_msssim"):
        from pytorch_msssim import ssim as peer

        contenders["pytorch-msssim"] = both(lambda: peer(x, y, data_range=1.0))
    if device == "cuda" and is_there("fused_ssim"):
        from fused_ssim import fused_ssim

        fixed = y.detach()
        contenders["fused-ssim, one gradient"] = lambda: torch.autograd.grad(
            fused_ssim(x, fixed), x
        )
    # Both images are read and both gradients written.
    name = f"SSIM and gradients {size_name(shape, dtype)}"
    return Workload(name, device, 4 * x.nbytes, contenders)


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
        yield "ssim-7x7", partial(uniform_ssim, ON_CPU, F32, device)
        yield "ssim-gradients", partial(ssim_gradients, ON_CPU, F32, device)
        return
    for shape in (SMALL, MEDIUM, LARGE):
        for dtype in (F32, F16, BF16, U8) if shape == LARGE else (F32,):
            yield f"ssim-{size_name(shape, dtype)}", partial(ssim, shape, dtype, device)
    yield f"ssim-7x7-{size_name(LARGE, F32)}", partial(uniform_ssim, LARGE, F32, device)
    for shape in (SMALL, MEDIUM):
        name = f"ssim-gradients-{size_name(shape, F32)}"
        yield name, partial(ssim_gradients, shape, F32, device)


def ms_ssim_makers(device: str) -> Makers:
    """The workloads of MS-SSIM."""
    if device == "cpu":
        yield "ms-ssim", partial(ms_ssim, ON_CPU, F32, device)
        return
    for shape in (SMALL, MEDIUM, LARGE):
        for dtype in (F32, F16, U8) if shape == LARGE else (F32,):
            yield f"ms-ssim-{size_name(shape, dtype)}", partial(ms_ssim, shape, dtype, device)
