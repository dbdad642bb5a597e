"""How the time grows with the work: above the cost of a launch it should grow as the bytes do."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import torch

from syncfree.benchmarking.suites.workload import BF16, F32, Call, Makers, Workload, images

SIDES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
BATCHES = (1, 4, 16, 64, 256)
CLASSES = (2, 10, 100, 1000, 8192, 32768, 128256, 262144)
PREFIX = "scaling: "


def image_metric(metric: str, batch: int, side: int, series: str, device: str) -> Workload:
    """A metric of square images; ``series`` names the line of the plot that it belongs to."""
    from syncfree import functional as sf

    x, y = images((batch, 3, side, side), F32, device)
    functions: dict[str, Any] = {
        "PSNR": sf.peak_signal_noise_ratio,
        "SSIM": sf.structural_similarity_index_measure,
        "MS-SSIM": sf.multiscale_structural_similarity_index_measure,
    }
    contenders: dict[str, Call] = {"syncfree": lambda: functions[metric](x, y, data_range=1.0)}
    name = f"{PREFIX}{metric} by {series}, {batch}x3x{side}x{side}"
    return Workload(name, device, 2 * x.nbytes, contenders)


def accuracy(average: Literal["micro", "macro"], rows: int, classes: int, device: str) -> Workload:
    """Accuracy of rows in which the target has the largest score, so that all scores are read."""
    from syncfree.functional import multiclass_accuracy

    scores = torch.randn(rows, classes, device=device).to(BF16)
    target = scores.argmax(1)
    contenders: dict[str, Call] = {
        "syncfree": lambda: multiclass_accuracy(
            scores, target, num_classes=classes, average=average
        )
    }
    name = f"{PREFIX}accuracy {average} by classes, {rows}x{classes}"
    return Workload(name, device, scores.nbytes + target.nbytes, contenders)


def makers(device: str) -> Makers:
    """The workloads of this suite."""
    on_gpu = device == "cuda"
    for metric in ("PSNR", "SSIM", "MS-SSIM"):
        for side in SIDES if on_gpu else SIDES[:5]:
            if metric == "MS-SSIM" and side < 256:  # its five scales need 161 pixels
                continue
            yield (
                f"scaling-{metric}-{side}",
                partial(image_metric, metric, 1, side, "size", device),
            )
        for batch in BATCHES if on_gpu else BATCHES[:3]:
            yield (
                f"scaling-{metric}-batch-{batch}",
                partial(image_metric, metric, batch, 256, "batch", device),
            )
    averages: tuple[Literal["micro", "macro"], ...] = ("micro", "macro")
    for average in averages:
        for classes in CLASSES if on_gpu else CLASSES[:5]:
            rows = 4096 if on_gpu else 512
            yield (
                f"scaling-accuracy-{average}-{classes}",
                partial(accuracy, average, rows, classes, device),
            )
