"""Arguments that the losses have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from syncfree._ops.checks import dtype_name
from syncfree.functional._arguments import require_tensors
from syncfree.functional._gradients import is_transformed
from syncfree.functional.image._options import check_ssim_options
from syncfree.functional.image._preset import DEFAULT_WINDOW, Window

_NEVER_NEGATIVE = (torch.bool, torch.uint8)

DataRange = float | tuple[float, float]


class SSIMOptions(TypedDict, total=False):
    """Arguments of `structural_similarity_index_measure` that every loss passes on."""

    gaussian_kernel: bool
    sigma: float | Sequence[float]
    kernel_size: int | Sequence[int]
    k1: float
    k2: float


def require_floats(preds: Tensor, target: Tensor) -> None:
    """Raises for integers, which have no gradient: a network would silently learn nothing."""
    require_tensors(preds, target)
    if not any(x.is_floating_point() or x.is_complex() for x in (preds, target)):
        raise TypeError(
            "Expected `preds` and `target` of a floating dtype, but got "
            f"{dtype_name(preds.dtype)}, which has no gradient. Convert them, for "
            "example with `preds.float() / 255` for a range of 1. For a value alone take the "
            "metrics of `syncfree.functional`."
        )


def require_range(data_range: object) -> None:
    """Raises for None: a range of the batch would make an image's loss depend on the others."""
    if data_range is None:
        raise TypeError(
            "Expected argument `data_range` to be a number or a tuple of two numbers (low, high), "
            "but got None. A loss wants the same range for every batch: name it."
        )


def require_known(loss: str, options: SSIMOptions, known: frozenset[str]) -> None:
    """Raises for an option that the loss does not have, and names all of its keywords, `known`."""
    for name in options:
        if name not in known:
            raise TypeError(
                f"{loss}() got an unexpected keyword argument {name!r}. Expected some of "
                f"{', '.join(sorted(known))}."
            )


def require_size_that_counts(preds: Tensor, options: SSIMOptions) -> None:
    """Raises for another ``kernel_size`` than a Gaussian window's, which follows from sigma.

    For volumes it is allowed, since it sets the border of the last axis. Presets and wrong options
    are checked elsewhere.
    """
    if "kernel_size" not in options or preds.ndim != 4:
        return
    is_plain = options.get("preset", "torchmetrics") == "torchmetrics"
    if not is_plain or options.get("gaussian_kernel", True) is not True:
        return
    sizes = _for_both_axes(options["kernel_size"], int)
    sigmas = _for_both_axes(options.get("sigma", 1.5), float)
    if sizes is None or sigmas is None or not all(size % 2 for size in sizes):
        return
    taps = [2 * int(3.5 * sigma + 0.5) + 1 for sigma in sigmas]
    if sizes != taps:
        raise ValueError(
            "Expected argument `kernel_size` to be left out beside a Gaussian window, whose size "
            f"follows `sigma`: {taps} for {sigmas}, but got {sizes}. Pass a smaller or larger "
            "`sigma`, or `gaussian_kernel=False` for a uniform window."
        )


def _for_both_axes(given: object, kind: type[int] | type[float]) -> list[float] | None:
    """Positive numbers of Python, one for each axis; None for anything else."""
    entries: list[Any] = list(given) if isinstance(given, (list, tuple)) else [given]
    if len(entries) not in (1, 2) or not all(type(each) in (int, kind) for each in entries):
        return None
    if not all(0 < each < 1e6 for each in entries):
        return None
    return entries if len(entries) == 2 else entries * 2


def check_options(
    loss: str, data_range: DataRange, options: SSIMOptions, known: frozenset[str]
) -> None:
    """Raises when a module is made the errors that otherwise its first call would raise."""
    require_known(loss, options, known)
    require_range(data_range)
    check_ssim_options(
        data_range,
        options.get("gaussian_kernel", True),
        options.get("sigma", 1.5),
        options.get("kernel_size", 11),
        options.get("k1", 0.01),
        options.get("k2", 0.03),
    )


def window_of(options: SSIMOptions) -> Window:
    """The window that the options ask for, to be checked against a preset."""
    given = {name: options.get(name, default) for name, default in DEFAULT_WINDOW._asdict().items()}
    return Window(**given)


def require_mask(mask: object, shape: Sequence[int]) -> None:
    """Raises unless the mask is a tensor that expands to a map of this shape."""
    if not isinstance(mask, Tensor):
        raise TypeError(
            f"Expected argument `mask` to be a tensor or None, but got {type(mask).__name__}. "
            "Convert it with `torch.as_tensor(mask, device=preds.device)`."
        )
    pairs = zip(reversed(mask.shape), reversed(shape), strict=False)
    if mask.ndim > len(shape) or not all(m in (1, size) for m, size in pairs):
        raise RuntimeError(
            f"Expected argument `mask` of a shape that expands to {list(shape)}, that of the map "
            f"of SSIM, but got {list(mask.shape)}. A mask for each image is (B, 1, H, W): "
            "`mask.unsqueeze(1)` makes that of (B, H, W)."
        )


def negative_weights(mask: Tensor) -> Tensor | None:
    """Whether the mask has negative weights, as a tensor; None if it has none for certain.

    On the CPU, where reading it costs no wait, negative weights raise ValueError.
    """
    if mask.dtype in _NEVER_NEGATIVE or mask.numel() == 0:
        return None
    least = mask.detach().amin()
    is_at_hand = least.device.type == "cpu" and type(least) is Tensor
    if not is_at_hand or is_dynamo_compiling() or is_transformed():
        return least < 0
    if least < 0:
        raise ValueError(
            "Expected argument `mask` to hold weights that are not negative, but the least is "
            f"{least.item():g}. 0 leaves a position out: `mask.clamp(min=0)`, or `mask == 1` for "
            "marks."
        )
    return None
