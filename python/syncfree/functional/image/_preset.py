"""Presets: named definitions of SSIM and PSNR, which libraries define differently."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from syncfree.functional._arguments import number, require_tensors

Preset = Literal["torchmetrics", "wang", "skimage", "pytorch-msssim"]
MsSsimPreset = Literal["torchmetrics", "wang", "pytorch-msssim"]
PsnrPreset = Literal["torchmetrics", "skimage"]


class Window(NamedTuple):
    """The arguments that a preset sets."""

    gaussian_kernel: Any
    sigma: Any
    kernel_size: Any


class _Definition(NamedTuple):
    window: Window
    sample_covariance: bool = False


DEFAULT_WINDOW = Window(gaussian_kernel=True, sigma=1.5, kernel_size=11)
_SSIM = {
    "wang": _Definition(DEFAULT_WINDOW),
    "pytorch-msssim": _Definition(DEFAULT_WINDOW),
    "skimage": _Definition(DEFAULT_WINDOW._replace(gaussian_kernel=False, kernel_size=7), True),
}


def check_ssim_preset(preset: str, window: Window) -> _Definition:
    """The definition; raises ValueError for an unknown name or a window that is not its own."""
    if not isinstance(preset, str) or preset not in _SSIM:
        names = "torchmetrics", *_SSIM
        raise ValueError(f"Expected argument `preset` to be one of {names}, but got {preset!r}.")
    definition = _SSIM[preset]
    if window not in (DEFAULT_WINDOW, definition.window):
        raise ValueError(
            f"Argument `preset={preset!r}` sets the window: expected `gaussian_kernel`, `sigma` "
            f"and `kernel_size` to be left out, but got {tuple(window)}. Leave them out, or leave "
            '`preset` at "torchmetrics".'
        )
    return definition


def ssim_preset(
    preset: str, preds: Tensor, target: Tensor, window: Window, data_range: Any, k2: Any
) -> tuple[Window, Any, float]:
    """Window, range and ``k2`` of a preset other than TorchMetrics; its windows have no padding."""
    definition = check_ssim_preset(preset, window)
    require_tensors(preds, target)
    constant = number("k2", k2)
    if definition.sample_covariance:
        # Sample variances are larger by n / (n - 1). Dividing c2 by that gives the same value.
        n = definition.window.kernel_size ** max(preds.ndim - 2, 1)  # the op refuses other shapes
        constant *= math.sqrt((n - 1) / n)
    return definition.window, range_of(preset, preds, target, data_range), constant


def check_ms_ssim_preset(preset: str, window: Window, normalize: Any) -> None:
    """Raises ValueError for a preset without multi-scale SSIM, or arguments other than its own."""
    names = get_args(MsSsimPreset)
    if not isinstance(preset, str) or preset not in names:
        reason = " scikit-image has no multi-scale SSIM." if preset == "skimage" else ""
        raise ValueError(
            f"Expected argument `preset` to be one of {names}, but got {preset!r}.{reason}"
        )
    check_ssim_preset(preset, window)
    if normalize != "relu":
        raise ValueError(
            f"Argument `preset={preset!r}` counts negative means as 0: expected `normalize` to be "
            f'left at "relu", but got {normalize!r}.'
        )


def check_psnr_preset(preset: str, dim: Any) -> None:
    """Raises ValueError for a preset without PSNR, or if ``dim`` is given too."""
    if preset != "skimage":
        raise ValueError(
            "Expected argument `preset` to be 'torchmetrics' or 'skimage', which have a PSNR, but "
            f"got {preset!r}."
        )
    if dim is not None:
        raise ValueError(
            f"Argument `preset={preset!r}` takes images one by one: expected `dim` to be left out, "
            f"but got {dim!r}."
        )


def psnr_preset(
    preset: str, preds: Tensor, target: Tensor, data_range: Any, dim: Any
) -> tuple[Any, tuple[int, ...]]:
    """Range and dimensions of a preset other than TorchMetrics."""
    check_psnr_preset(preset, dim)
    require_tensors(preds, target)
    if preds.ndim not in (4, 5):
        raise ValueError(
            f"Expected `preds` to have BxCxHxW or BxCxDxHxW shape with `preset={preset!r}`, but "
            f"got {list(preds.shape)}."
        )
    return range_of(preset, preds, target, data_range), tuple(range(1, preds.ndim))


def range_of(preset: str, preds: Tensor, target: Tensor, data_range: Any) -> Any:
    """The given range, else 255 for uint8; required for floats, as in scikit-image."""
    if data_range is not None:
        return data_range
    if preds.dtype == target.dtype == torch.uint8:
        return 255.0
    raise ValueError(
        f"Expected argument `data_range` with `preset={preset!r}`, but got None, which stands for "
        "255 where both images are uint8. Pass their range, for example `data_range=1.0`."
    )
