"""The arguments of the SSIM ops other than the images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from torch import Tensor

from syncfree._ops import ssim as _ops
from syncfree._ops.registry import reduction_code
from syncfree.functional._arguments import integer, number, require_tensors
from syncfree.functional.image._options import gaussian_flag
from syncfree.functional.image._preset import Preset, Window, ssim_preset
from syncfree.functional.image._range import is_narrow, parse_data_range

Entry = TypeVar("Entry", int, float)
Reduction = Literal["elementwise_mean", "sum", "none"] | None


def ssim_arguments(
    preds: Any,
    target: Any,
    data_range: float | tuple[float, float] | None,
    gaussian_kernel: bool = True,
    sigma: float | Sequence[float] = 1.5,
    kernel_size: int | Sequence[int] = 11,
    reduction: Reduction = "elementwise_mean",
    k1: float = 0.01,
    k2: float = 0.03,
    preset: Preset = "torchmetrics",
) -> tuple[Any, ...]:
    """All arguments of the ops other than the images."""
    valid = preset != "torchmetrics"
    if valid:
        window = Window(gaussian_kernel, sigma, kernel_size)
        window, data_range, k2 = ssim_preset(preset, preds, target, window, data_range, k2)
        gaussian_kernel, sigma, kernel_size = window
    value_range, interval = (
        (None, None) if data_range is None else parse_data_range(data_range, preds, target)
    )
    entries = window_arguments(preds, target, gaussian_kernel, sigma, kernel_size)
    constants = number("k1", k1), number("k2", k2)
    return *entries, value_range, interval, *constants, reduction_code(reduction), valid


def ssim_arguments_of_options(of_bytes: bool, *options: Any) -> tuple[Any, ...] | None:
    """The same from the options alone; None if the images have to be looked at.

    That is for a preset, for windows that are sequences, and to warn of uint8 images.
    """
    _, _, sigma, kernel_size, *_, preset = options
    if type(sigma) is not float or type(kernel_size) is not int or preset != "torchmetrics":
        return None
    arguments = ssim_arguments(None, None, *options)
    value_range = arguments[3]
    return None if of_bytes and is_narrow(value_range) else arguments


def window_arguments(
    preds: Tensor,
    target: Tensor,
    gaussian_kernel: bool,
    sigma: float | Sequence[float],
    kernel_size: int | Sequence[int],
) -> tuple[bool, Sequence[float], Sequence[int]]:
    """The window as the ops take it: a number for all axes becomes a sequence of one."""
    if type(sigma) is float and type(kernel_size) is int:  # fast path of the usual call
        return gaussian_flag(gaussian_kernel), (sigma,), (kernel_size,)
    images = preds, target
    sizes = _entries(
        images, "kernel_size", kernel_size, integer, "an integer or a sequence of them"
    )
    sigmas = _entries(images, "sigma", sigma, number, "a number or a sequence of numbers")
    return gaussian_flag(gaussian_kernel), sigmas, sizes


def _entries(
    images: tuple[Tensor, Tensor],
    name: str,
    given: Any,
    convert: Callable[[str, Any, str], Entry],
    expected: str,
) -> Sequence[Entry]:
    if not isinstance(given, Sequence) or isinstance(given, str):
        return (convert(name, given, expected),)
    if len(given) == 1:  # the ops would take it for a number
        require_tensors(*images)
        _ops.check_images(*images)
        _ops.check_count(name, given, images[0])
    return [convert(name, entry, expected) for entry in given]
