"""Accuracy: syncfree beside TorchMetrics, plain torch and torch.compile."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from syncfree.benchmarking.suites.peers import is_there
from syncfree.benchmarking.suites.workload import BF16, F32, Call, Makers, Workload, size_name


def workload(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: str,
    average: str = "micro",
    top_k: int = 1,
    correct: float = 0.6,
) -> Workload:
    """Scores (N, C, ...); for about the share ``correct`` of them the target has the top score."""
    from syncfree.functional import multiclass_accuracy

    scores = torch.randn(shape, device=device).to(dtype)
    best = scores.argmax(1)
    other = torch.randint(0, shape[1], best.shape, device=device)
    target = torch.where(torch.rand(best.shape, device=device) < correct, best, other)
    arguments: dict[str, Any] = {"num_classes": shape[1], "average": average, "top_k": top_k}

    def plain() -> Tensor:
        return (scores.argmax(1) == target).float().mean()

    contenders: dict[str, Call] = {
        "syncfree": lambda: multiclass_accuracy(scores, target, **arguments)
    }
    # TorchMetrics makes C * C bins: for 128,256 classes these are 1.6e10, and it fails with an
    # illegal memory access.
    if is_there("torchmetrics") and (average == "micro" or shape[1] < 20_000):
        import torchmetrics.functional.classification as tm

        contenders["torchmetrics"] = lambda: tm.multiclass_accuracy(
            scores, target, validate_args=False, **arguments
        )
    if average == "micro" and top_k == 1:
        contenders["plain torch"] = plain
        if device == "cuda":
            compiled = torch.compile(plain)
            contenders["torch.compile"] = lambda: compiled()
    name = f"accuracy {average}{f' top-{top_k}' if top_k > 1 else ''} {size_name(shape, dtype)}"
    if shape[1] > 100_000:
        name += f", {correct:.0%} right"
    return Workload(name, device, scores.nbytes + target.nbytes, contenders)


def top_list(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> Workload:
    """Top-1 and top-5 in one pass; TorchMetrics needs a call for each."""
    from syncfree.functional import multiclass_accuracy

    scores = torch.randn(shape, device=device).to(dtype)
    best = scores.argmax(1)
    other = torch.randint(0, shape[1], best.shape, device=device)
    target = torch.where(torch.rand(best.shape, device=device) < 0.6, best, other)
    arguments: dict[str, Any] = {"num_classes": shape[1], "average": "micro"}
    contenders: dict[str, Call] = {
        "syncfree": lambda: multiclass_accuracy(scores, target, top_k=[1, 5], **arguments)
    }
    if is_there("torchmetrics"):
        import torchmetrics.functional.classification as tm

        contenders["torchmetrics"] = lambda: [
            tm.multiclass_accuracy(scores, target, top_k=k, validate_args=False, **arguments)
            for k in (1, 5)
        ]
    name = f"accuracy micro top-1 and top-5 {size_name(shape, dtype)}, 60% right"
    return Workload(name, device, scores.nbytes + target.nbytes, contenders)


def of_labels(task: str, shape: tuple[int, ...], device: str) -> Workload:
    """Binary or multilabel accuracy of probabilities."""
    from syncfree import functional as sf

    preds = torch.rand(shape, device=device)
    target = torch.randint(0, 2, shape, device=device)
    own = {} if task == "binary" else {"num_labels": shape[1]}
    ours = getattr(sf, f"{task}_accuracy")
    contenders: dict[str, Call] = {"syncfree": lambda: ours(preds, target, **own)}
    if is_there("torchmetrics"):
        import torchmetrics.functional.classification as tm

        theirs = getattr(tm, f"{task}_accuracy")
        contenders["torchmetrics"] = lambda: theirs(preds, target, validate_args=False, **own)
    if task == "binary":
        contenders["plain torch"] = lambda: ((preds > 0.5) == target).float().mean()
    name = f"{task} accuracy {size_name(shape, F32)}"
    return Workload(name, device, preds.nbytes + target.nbytes, contenders)


_Row = tuple[tuple[int, ...], torch.dtype, str, int, float]
ON_GPU: list[_Row] = [
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


def makers(device: str) -> Makers:
    """The workloads of this suite."""
    if device == "cpu":
        segmentation = (2, 19, 512, 512)
        yield "accuracy-256x1000-micro", partial(workload, (256, 1000), F32, device)
        yield "accuracy-256x1000-macro", partial(workload, (256, 1000), F32, device, "macro")
        yield "accuracy-seg-micro", partial(workload, segmentation, F32, device)
        yield "accuracy-seg-macro", partial(workload, segmentation, F32, device, "macro")
        yield (
            "accuracy-512x128256",
            partial(workload, (512, 128256), BF16, device, correct=1.0),
        )
        return
    for shape, dtype, average, k, correct in ON_GPU:
        yield (
            f"accuracy-{average}-{k}-{correct}-{size_name(shape, dtype)}",
            partial(workload, shape, dtype, device, average, k, correct),
        )
    yield "accuracy-top-1-and-5-4096x128256", partial(top_list, (4096, 128256), BF16, device)
    yield "accuracy-binary-1048576", partial(of_labels, "binary", (2**20,), device)
    yield "accuracy-multilabel-8192x1000", partial(of_labels, "multilabel", (8192, 1000), device)
