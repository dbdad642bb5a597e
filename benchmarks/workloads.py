"""What is measured: one table of workloads, each with every contender that can do it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from syncfree.functional import (
    image_quality,
    multiclass_accuracy,
    multiscale_structural_similarity_index_measure,
    peak_signal_noise_ratio,
    structural_similarity_index_measure,
)

Call = Callable[[], object]


@dataclass(frozen=True)
class Workload:
    """One piece of work and who does it."""

    name: str
    device: str
    bytes: int  # that any implementation must read
    contenders: dict[str, Call] = field(default_factory=dict)
    is_class: bool = False  # a step of a metric class, of which the launches are counted too


def _images(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor]:
    x = torch.rand(shape, device=device)
    y = (x + 0.05 * torch.randn(shape, device=device)).clamp(0, 1)
    if dtype == torch.uint8:
        return (x * 255).to(dtype), (y * 255).to(dtype)
    return x.to(dtype), y.to(dtype)


def psnr_loads(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> Workload:
    import torchmetrics.functional.image as tm

    x, y = _images(shape, dtype, device)
    top = 255.0 if dtype == torch.uint8 else 1.0

    def plain(a: Tensor, b: Tensor) -> Tensor:
        return 10 * torch.log10(top * top / ((a.float() - b.float()) ** 2).mean())

    contenders: dict[str, Call] = {
        "syncfree": lambda: peak_signal_noise_ratio(x, y, top),
        "torchmetrics": lambda: tm.peak_signal_noise_ratio(x, y, data_range=top),
        "plain torch": lambda: plain(x, y),
    }
    if device == "cuda":
        compiled = torch.compile(plain)
        contenders["torch.compile"] = lambda: compiled(x, y)
    return Workload(f"PSNR {_name(shape, dtype)}", device, 2 * x.nbytes, contenders)


def ssim_loads(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> Workload:
    import torchmetrics.functional.image as tm

    x, y = _images(shape, dtype, device)
    top = 255.0 if dtype == torch.uint8 else 1.0
    contenders: dict[str, Call] = {
        "syncfree": lambda: structural_similarity_index_measure(x, y, data_range=top),
        "syncfree image_quality": lambda: image_quality(x, y, top),
    }
    if dtype == torch.float32:
        contenders["torchmetrics"] = lambda: tm.structural_similarity_index_measure(
            x, y, data_range=top
        )
        if importlib.util.find_spec("pytorch_msssim") is not None:
            from pytorch_msssim import ssim

            contenders["pytorch-msssim"] = lambda: ssim(x, y, data_range=top)
    return Workload(f"SSIM {_name(shape, dtype)}", device, 2 * x.nbytes, contenders)


def ms_ssim_loads(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> Workload:
    import torchmetrics.functional.image as tm

    x, y = _images(shape, dtype, device)
    top = 255.0 if dtype == torch.uint8 else 1.0
    contenders: dict[str, Call] = {
        "syncfree": lambda: multiscale_structural_similarity_index_measure(x, y, data_range=top)
    }
    if dtype == torch.float32:
        contenders["torchmetrics"] = lambda: tm.multiscale_structural_similarity_index_measure(
            x, y, data_range=top
        )
        if importlib.util.find_spec("pytorch_msssim") is not None:
            from pytorch_msssim import ms_ssim

            contenders["pytorch-msssim"] = lambda: ms_ssim(x, y, data_range=top)
    return Workload(f"MS-SSIM {_name(shape, dtype)}", device, 2 * x.nbytes, contenders)


def accuracy_loads(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: str,
    average: str = "micro",
    top_k: int = 1,
    correct: float = 0.6,
) -> Workload:
    """Scores (N, C, ...) of which about the share ``correct`` has its target on top."""
    import torchmetrics.functional.classification as tm

    scores = torch.randn(shape, device=device).to(dtype)
    best = scores.argmax(1)
    other = torch.randint(0, shape[1], best.shape, device=device)
    target = torch.where(torch.rand(best.shape, device=device) < correct, best, other)
    arguments = {"num_classes": shape[1], "average": average, "top_k": top_k}

    def plain() -> Tensor:
        return (scores.argmax(1) == target).float().mean()

    contenders: dict[str, Call] = {
        "syncfree": lambda: multiclass_accuracy(scores, target, **arguments)
    }
    # TorchMetrics builds C * C bins: 1.6e10 of them for 128,256 classes, an illegal memory access.
    if average == "micro" or shape[1] < 20_000:
        contenders["torchmetrics"] = lambda: tm.multiclass_accuracy(
            scores, target, validate_args=False, **arguments
        )
    if average == "micro" and top_k == 1:
        contenders["plain torch"] = plain
        if device == "cuda":
            compiled = torch.compile(plain)
            contenders["torch.compile"] = lambda: compiled()
    name = f"accuracy {average}{f' top-{top_k}' if top_k > 1 else ''} {_name(shape, dtype)}"
    if shape[1] > 100_000:
        name += f", {correct:.0%} right"
    return Workload(name, device, scores.nbytes + target.nbytes, contenders)


def _name(shape: tuple[int, ...], dtype: torch.dtype) -> str:
    return f"{'x'.join(map(str, shape))} {str(dtype).removeprefix('torch.')}"


SMALL, MEDIUM, LARGE = (16, 3, 256, 256), (8, 3, 1080, 1920), (32, 3, 1080, 1920)
F32, F16, BF16, U8 = torch.float32, torch.float16, torch.bfloat16, torch.uint8


def cuda_workloads() -> Iterator[tuple[str, Callable[[], Workload]]]:
    """Names and makers; a maker allocates, so one workload lives at a time."""
    for shape in (SMALL, MEDIUM, LARGE):
        for dtype in (F32, U8) if shape == LARGE else (F32,):
            yield f"psnr-{_name(shape, dtype)}", lambda s=shape, d=dtype: psnr_loads(s, d, "cuda")
    for shape in (SMALL, MEDIUM, LARGE):
        for dtype in (F32, F16, U8) if shape == LARGE else (F32,):
            yield f"ssim-{_name(shape, dtype)}", lambda s=shape, d=dtype: ssim_loads(s, d, "cuda")
    for shape in (SMALL, MEDIUM, LARGE):
        for dtype in (F32, F16, U8) if shape == LARGE else (F32,):
            yield (
                f"ms-ssim-{_name(shape, dtype)}",
                lambda s=shape, d=dtype: ms_ssim_loads(s, d, "cuda"),
            )
    rows: list[tuple[tuple[int, ...], torch.dtype, str, int, float]] = [
        ((256, 1000), F32, "micro", 1, 0.6),
        ((256, 1000), F32, "macro", 1, 0.6),
        ((8192, 1000), F32, "micro", 1, 0.6),
        ((8192, 1000), F32, "macro", 1, 0.6),
        ((4096, 128256), BF16, "micro", 1, 1.0),
        ((4096, 128256), BF16, "micro", 1, 0.6),
        ((4096, 128256), BF16, "micro", 1, 0.0),
        ((4096, 128256), BF16, "micro", 5, 0.6),
        ((4096, 128256), BF16, "macro", 1, 0.6),
        ((8, 19, 1024, 1024), F32, "micro", 1, 0.6),
        ((8, 19, 1024, 1024), F32, "macro", 1, 0.6),
    ]
    for shape, dtype, average, k, correct in rows:
        yield (
            f"accuracy-{average}-{k}-{correct}-{_name(shape, dtype)}",
            lambda r=(shape, dtype, "cuda", average, k, correct): accuracy_loads(*r),
        )


def cpu_workloads() -> Iterator[tuple[str, Callable[[], Workload]]]:
    """The shapes of a laptop's or a CI machine's evaluation."""
    shape = (4, 3, 512, 768)
    yield "psnr", lambda: psnr_loads(shape, F32, "cpu")
    yield "ssim", lambda: ssim_loads(shape, F32, "cpu")
    yield "ms-ssim", lambda: ms_ssim_loads(shape, F32, "cpu")
    yield "accuracy-256x1000-micro", lambda: accuracy_loads((256, 1000), F32, "cpu")
    yield "accuracy-256x1000-macro", lambda: accuracy_loads((256, 1000), F32, "cpu", "macro")
    yield "accuracy-seg-micro", lambda: accuracy_loads((2, 19, 512, 512), F32, "cpu")
    yield "accuracy-seg-macro", lambda: accuracy_loads((2, 19, 512, 512), F32, "cpu", "macro")
    yield "accuracy-512x128256", lambda: accuracy_loads((512, 128256), BF16, "cpu", correct=1.0)
