"""The same work on other tensors than dense ones: layouts, odd sizes, small images."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from syncfree.benchmarking.suites.workload import (
    BF16,
    F32,
    MEDIUM,
    Call,
    Makers,
    Workload,
    images,
    size_name,
)

Metric = Callable[..., Any]


def image_layouts(
    name: str, metric: Metric, per_image: dict[str, Any], shape: tuple[int, ...], device: str
) -> Workload:
    """A metric of images with about the same number of pixels in several layouts.

    ``per_image`` are the arguments that make it return a value for each image.
    """
    n, c, h, w = shape
    dense = images(shape, F32, device)
    large = images((n, c, h + 2, w + 6), F32, device)
    odd = images((n, c, h - 1, w - 1), F32, device)
    side = 128
    small = images((max(1, n * h * w // side**2), c, side, side), F32, device)
    last = tuple(x.to(memory_format=torch.channels_last) for x in dense)
    cropped = tuple(x[:, :, 1:-1, 3:-3] for x in large)

    def of(pair: tuple[Tensor, ...], **options: Any) -> Call:
        return lambda: metric(*pair, data_range=1.0, **options)

    contenders = {
        "syncfree": of(dense),
        "syncfree per image": of(dense, **per_image),
        "syncfree channels-last": of(last),
        "syncfree cropped views": of(cropped),
        "syncfree odd size": of(odd),
        f"syncfree {side}x{side} images": of(small),
    }
    nbytes = 2 * dense[0].nbytes
    return Workload(f"layouts: {name} {size_name(shape, F32)}", device, nbytes, contenders)


def token_logits(shape: tuple[int, ...], device: str) -> Workload:
    """Accuracy of a language model's next tokens, from its shifted (B, T + 1, V) logits."""
    from syncfree.functional import multiclass_accuracy

    batch, tokens, classes = shape
    logits = torch.randn(batch, tokens + 1, classes, device=device).to(BF16)
    labels = torch.randint(0, classes, (batch, tokens + 1), device=device)
    labels[:, ::7] = -100
    shifted, target = logits[:, :-1].transpose(1, 2), labels[:, 1:]
    dense, flat = logits[:, :-1].reshape(-1, classes), target.reshape(-1)
    options: dict[str, Any] = {"num_classes": classes, "average": "micro", "ignore_index": -100}
    contenders: dict[str, Call] = {
        "syncfree": lambda: multiclass_accuracy(dense, flat, **options),
        "syncfree shifted view": lambda: multiclass_accuracy(shifted, target, **options),
    }
    name = f"layouts: accuracy of tokens {size_name(shape, BF16)}"
    return Workload(name, device, dense.nbytes + flat.nbytes, contenders)


def pixel_layouts(shape: tuple[int, ...], device: str) -> Workload:
    """Accuracy of a segmentation's pixels."""
    from syncfree.functional import multiclass_accuracy

    n, classes, h, w = shape
    scores = torch.randn(shape, device=device)
    target = torch.randint(0, classes, (n, h, w), device=device)
    last = scores.to(memory_format=torch.channels_last)
    cropped = torch.randn(n, classes, h + 2, w + 6, device=device)[:, :, 1:-1, 3:-3]
    odd = torch.randn(n, classes, h - 1, w - 1, device=device)
    odd_target = target[:, 1:, 1:].contiguous()

    def of(scores: Tensor, target: Tensor, **options: Any) -> Call:
        return lambda: multiclass_accuracy(scores, target, num_classes=classes, **options)

    contenders = {
        "syncfree": of(scores, target),
        "syncfree per image": of(scores, target, multidim_average="samplewise"),
        "syncfree channels-last": of(last, target),
        "syncfree cropped views": of(cropped, target),
        "syncfree odd size": of(odd, odd_target),
        "syncfree int32 labels": of(scores, target.int()),
    }
    nbytes = scores.nbytes + target.nbytes
    return Workload(f"layouts: accuracy {size_name(shape, F32)}", device, nbytes, contenders)


def makers(device: str) -> Makers:
    """The workloads of this suite."""
    from syncfree import functional as sf

    on_gpu = device == "cuda"
    shape = MEDIUM if on_gpu else (1, 3, 512, 768)
    yield (
        "layouts-psnr",
        partial(
            image_layouts,
            "PSNR",
            sf.peak_signal_noise_ratio,
            {"dim": (1, 2, 3), "reduction": "none"},
            shape,
            device,
        ),
    )
    none = {"reduction": "none"}
    ssim = sf.structural_similarity_index_measure
    yield "layouts-ssim", partial(image_layouts, "SSIM", ssim, none, shape, device)
    pixels = (8, 19, 1024, 1024) if on_gpu else (1, 19, 512, 512)
    yield "layouts-pixels", partial(pixel_layouts, pixels, device)
    tokens = (8, 2048, 32000) if on_gpu else (2, 128, 32000)
    yield "layouts-tokens", partial(token_logits, tokens, device)
