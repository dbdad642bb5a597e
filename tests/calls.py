"""One call of every public function, with inputs that can be overwritten in place.

Sync, stream, device, capture and compile tests walk this table, so a new metric is one line here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cases import image_pair
from syncfree import functional as sf
from syncfree._ops import ms_ssim, ssim
from syncfree._ops.psnr import psnr_from_errors

Inputs = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class PublicCall:
    """A function of two tensors and a maker of fresh inputs."""

    name: str
    run: Callable[[Tensor, Tensor], Tensor | tuple[Tensor, ...]]
    inputs: Callable[[str, int], Inputs]

    def __str__(self) -> str:
        return self.name

    def results(self, preds: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        """The results, always as a tuple."""
        out = self.run(preds, target)
        return (out,) if isinstance(out, Tensor) else tuple(out)


def images(device: str, seed: int) -> Inputs:
    return image_pair((3, 3, 64, 96), torch.float32, device, seed)


def byte_images(device: str, seed: int) -> Inputs:
    return image_pair((3, 3, 64, 96), torch.uint8, device, seed)


def large_images(device: str, seed: int) -> Inputs:
    return image_pair((2, 3, 177, 208), torch.float32, device, seed)


def frames(device: str, seed: int) -> Inputs:
    """Of 2^18 pixels and more, which the CUDA kernels walk in strips."""
    return image_pair((2, 3, 300, 304), torch.float32, device, seed)


def volumes(device: str, seed: int) -> Inputs:
    a, b = image_pair((2, 12 * 12, 14, 16), torch.float32, device, seed)
    return a.reshape(2, 1, 144, 14, 16)[:, :, ::9], b.reshape(2, 1, 144, 14, 16)[:, :, ::9]


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def scores(device: str, seed: int, shape: tuple[int, ...] = (256, 10)) -> Inputs:
    g = _generator(seed)
    preds = torch.randn(shape, generator=g)
    target = torch.randint(0, shape[1], (shape[0], *shape[2:]), generator=g)
    return preds.to(device), target.to(device)


def pixel_scores(device: str, seed: int) -> Inputs:
    return scores(device, seed, (2, 19, 16, 24))


def wide_scores(device: str, seed: int) -> Inputs:
    preds, target = scores("cpu", seed, (64, 5000))
    right = torch.rand(64, generator=_generator(seed)) < 0.5  # none is by chance
    preds[right, target[right]] = 10
    return preds.to(device), target.to(device)


def labels(device: str, seed: int) -> Inputs:
    g = _generator(seed)
    return (
        torch.randint(0, 10, (500,), generator=g).to(device),
        torch.randint(0, 10, (500,), generator=g).to(device),
    )


def probabilities(device: str, seed: int) -> Inputs:
    g = _generator(seed)
    preds, target = torch.rand((64, 5, 7), generator=g), torch.rand((64, 5, 7), generator=g) < 0.5
    return preds.to(device), target.long().to(device)


def _multiclass(**options: object) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda p, t: sf.multiclass_accuracy(p, t, **options)


def gathered_errors(device: str, seed: int) -> Inputs:
    g = _generator(seed)
    return (
        (torch.rand(3000, generator=g) + 0.1).to(device),
        torch.randint(1, 100, (3000,), generator=g).to(device),
    )


_WINDOW = (True, (1.5,), (11,), 1.0, None, 0.01, 0.03)


def _added(op: Callable[..., Any], *options: object) -> Callable[[Tensor, Tensor], Any]:
    """An op that adds a mean over images to states, which are results here."""

    def run(preds: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        states = [preds.new_zeros((), dtype=torch.float32) for _ in range(2)]
        result = op(preds, target, *states, *options)
        return *((result,) if isinstance(result, Tensor) else result), *states

    return run


CALLS = [
    PublicCall("psnr", lambda p, t: sf.peak_signal_noise_ratio(p, t, 1.0), images),
    PublicCall("psnr-bytes", lambda p, t: sf.peak_signal_noise_ratio(p, t, 255), byte_images),
    PublicCall(
        "psnr-per-image",
        lambda p, t: sf.peak_signal_noise_ratio(p, t, (0.0, 1.0), dim=(1, 2, 3), reduction="none"),
        images,
    ),
    PublicCall(
        "psnr-skimage-bytes",
        lambda p, t: sf.peak_signal_noise_ratio(p, t, None, preset="skimage"),
        byte_images,
    ),
    PublicCall(
        "psnr-from-errors",
        lambda errors, total: psnr_from_errors(errors, total, errors[0], 10.0, 1),
        gathered_errors,
    ),
    PublicCall(
        "ssim", lambda p, t: sf.structural_similarity_index_measure(p, t, data_range=1.0), images
    ),
    PublicCall(
        "ssim-bytes",
        lambda p, t: sf.structural_similarity_index_measure(p, t, data_range=255.0),
        byte_images,
    ),
    PublicCall(
        "ssim-range-of-data", lambda p, t: sf.structural_similarity_index_measure(p, t), images
    ),
    PublicCall(
        "ssim-uniform-map",
        lambda p, t: sf.structural_similarity_index_measure(
            p, t, gaussian_kernel=False, kernel_size=7, data_range=1.0, return_full_image=True
        ),
        images,
    ),
    PublicCall(
        "ssim-contrast",
        lambda p, t: sf.structural_similarity_index_measure(
            p, t, data_range=1.0, return_contrast_sensitivity=True
        ),
        images,
    ),
    PublicCall(
        "ssim-wang",
        lambda p, t: sf.structural_similarity_index_measure(p, t, data_range=1.0, preset="wang"),
        images,
    ),
    PublicCall(
        "ssim-skimage-bytes",
        lambda p, t: sf.structural_similarity_index_measure(p, t, preset="skimage"),
        byte_images,
    ),
    PublicCall(
        "ssim-frames",
        lambda p, t: sf.structural_similarity_index_measure(p, t, data_range=1.0),
        frames,
    ),
    PublicCall(
        "ssim-uniform-frames",
        lambda p, t: sf.structural_similarity_index_measure(
            p, t, gaussian_kernel=False, kernel_size=7, data_range=1.0
        ),
        frames,
    ),
    PublicCall(
        "ssim-3d",
        lambda p, t: sf.structural_similarity_index_measure(p, t, sigma=0.8, data_range=1.0),
        volumes,
    ),
    PublicCall(
        "ms-ssim",
        lambda p, t: sf.multiscale_structural_similarity_index_measure(p, t, data_range=1.0),
        large_images,
    ),
    PublicCall(
        "ms-ssim-range-of-data",
        lambda p, t: sf.multiscale_structural_similarity_index_measure(p, t, reduction="none"),
        large_images,
    ),
    PublicCall(
        "ms-ssim-wang",
        lambda p, t: sf.multiscale_structural_similarity_index_measure(
            p, t, data_range=1.0, preset="wang"
        ),
        large_images,
    ),
    PublicCall(
        "ms-ssim-pytorch-msssim-bytes",
        lambda p, t: sf.multiscale_structural_similarity_index_measure(
            p, t, betas=(0.4, 0.6), preset="pytorch-msssim"
        ),
        byte_images,
    ),
    PublicCall(
        "ms-ssim-frames",
        lambda p, t: sf.multiscale_structural_similarity_index_measure(
            p, t, data_range=1.0, betas=(0.3, 0.7)
        ),
        frames,
    ),
    PublicCall(
        "ms-ssim-3d",
        lambda p, t: sf.multiscale_structural_similarity_index_measure(
            p, t, sigma=0.8, kernel_size=5, data_range=1.0, betas=(0.5, 0.5)
        ),
        volumes,
    ),
    PublicCall("ssim-update", _added(ssim.ssim_update, *_WINDOW, 1), images),
    PublicCall("ssim-update-map", _added(ssim.ssim_update_with_map, *_WINDOW, 2), images),
    PublicCall("ssim-update-contrast", _added(ssim.ssim_update_with_contrast, *_WINDOW, 1), images),
    PublicCall(
        "ms-ssim-update",
        _added(ms_ssim.multiscale_ssim_update, *_WINDOW, (0.4, 0.3, 0.3), 1, 1),
        large_images,
    ),
    PublicCall("image-quality", lambda p, t: tuple(sf.image_quality(p, t, 1.0)), images),
    PublicCall("image-quality-frames", lambda p, t: tuple(sf.image_quality(p, t, 1.0)), frames),
    PublicCall("accuracy", lambda p, t: sf.accuracy(p, t, "multiclass", num_classes=10), scores),
    PublicCall("multiclass-micro", _multiclass(num_classes=10, average="micro"), scores),
    PublicCall("multiclass-macro", _multiclass(num_classes=10), scores),
    PublicCall("multiclass-top-3", _multiclass(num_classes=10, top_k=3), scores),
    PublicCall("multiclass-top-1-and-3", _multiclass(num_classes=10, top_k=[1, 3]), scores),
    PublicCall("multiclass-weighted", _multiclass(num_classes=10, average="weighted"), labels),
    PublicCall(
        "multiclass-ignore", _multiclass(num_classes=10, average="none", ignore_index=3), scores
    ),
    PublicCall("multiclass-pixels", _multiclass(num_classes=19), pixel_scores),
    PublicCall(
        "multiclass-samplewise",
        _multiclass(num_classes=19, multidim_average="samplewise"),
        pixel_scores,
    ),
    PublicCall("multiclass-wide", _multiclass(num_classes=5000, average="micro"), wide_scores),
    PublicCall(
        "multiclass-wide-top-1-and-5",
        _multiclass(num_classes=5000, average="micro", top_k=[1, 5]),
        wide_scores,
    ),
    PublicCall(
        "multiclass-pixels-top-2-and-4",
        _multiclass(num_classes=19, average="none", top_k=[4, 2], multidim_average="samplewise"),
        pixel_scores,
    ),
    PublicCall("multiclass-wide-macro", _multiclass(num_classes=5000), wide_scores),
    PublicCall("binary", lambda p, t: sf.binary_accuracy(p, t), probabilities),
    PublicCall(
        "binary-ignore", lambda p, t: sf.binary_accuracy(p, t, ignore_index=0), probabilities
    ),
    PublicCall("multilabel", lambda p, t: sf.multilabel_accuracy(p, t, 5), probabilities),
    PublicCall("safe-divide", lambda p, t: sf.safe_divide(p, t), images),
]
