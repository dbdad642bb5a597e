"""The ops behind SSIM and `image_quality`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from syncfree._ops.checks import (
    check_dtypes,
    check_running_mean,
    check_same_shape,
    dtype_name,
    floating,
)
from syncfree._ops.registry import REDUCTIONS, bind


def check_images(preds: Tensor, target: Tensor) -> None:
    """Checks shapes and dtypes as csrc/ops/ssim_arguments.cpp does; both need the same unit."""
    check_same_shape(preds, target)
    if preds.ndim not in (4, 5):
        advice = {
            2: " Add the axes of batch and channel with `[None, None]`.",
            3: " Add the batch axis with `.unsqueeze(0)`.",
        }.get(preds.ndim, "")
        raise ValueError(
            "Expected `preds` and `target` to have BxCxHxW or BxCxDxHxW shape. "
            f"Got preds: {list(preds.shape)} and target: {list(target.shape)}.{advice}"
        )
    check_dtypes(preds, target)
    for name, images in (("preds", preds), ("target", target)):
        if images.dtype is torch.bool:
            raise RuntimeError(
                f"Expected `{name}` to be images of a floating or integer dtype, but got bool. "
                "Convert them with `.to(torch.float32)`."
            )
    if preds.dtype.is_floating_point != target.dtype.is_floating_point:
        # Bytes in 0..255 beside floats in [0, 1] would give a number that means nothing.
        are_bytes = torch.uint8 in (preds.dtype, target.dtype)
        kind, top = ("bytes", "255") if are_bytes else ("integers", "their range")
        raise TypeError(
            f"Expected both images as {kind} or both as floats, but got `preds` of "
            f"{dtype_name(preds.dtype)} and `target` of {dtype_name(target.dtype)}. Divide the "
            f"{kind} by {top} for floats in [0, 1], or convert them with `.float()` to keep their "
            "values."
        )
    for name, images in (("preds", preds), ("target", target)):
        if not images.dtype.is_floating_point and images.dtype != torch.uint8:
            raise RuntimeError(
                f"Expected `{name}` to be images of a floating dtype or uint8, but got "
                f"{dtype_name(images.dtype)}. Convert them with `.to(torch.float32)`."
            )


def check_count(name: str, given: Sequence[float], images: Tensor) -> None:
    """Checks that a window has an entry for each spatial axis."""
    if len(given) != images.ndim - 2:
        raise ValueError(
            f"`{name}` has dimension {len(given)}, but expected to be two less that target "
            f"dimensionality, which is: {images.ndim}"
        )


_MOST_CHANNELS = 4  # a last axis of no more looks like channels


class _Axis(NamedTuple):
    size: int
    taps: int
    pad: int

    @property
    def positions(self) -> int:
        return self.size + 2 * self.pad - (self.taps - 1)


class _Arguments(NamedTuple):
    """The arguments that every op here takes."""

    preds: Tensor
    target: Tensor
    gaussian: bool
    sigma: Sequence[float]
    kernel_size: Sequence[int]
    data_range: float | None
    interval: Sequence[float] | None
    k1: float
    k2: float
    reduction: int
    valid: bool = False

    def axes(self) -> list[_Axis]:
        """TorchMetrics' axes: a Gaussian's size is by sigma, a volume's last pad by kernel_size."""
        sizes = self._per_axis("kernel_size", self.kernel_size)
        sigmas = self._per_axis("sigma", self.sigma)
        if not all(k > 0 and k % 2 == 1 for k in sizes):
            raise ValueError(f"Expected `kernel_size` to have odd positive number. Got {sizes}.")
        if not all(0 < s < 1e6 for s in sigmas):
            text = ", ".join(f"{s:g}" for s in sigmas)
            limit = " below 1e6" if any(s >= 1e6 for s in sigmas) else ""
            raise ValueError(f"Expected `sigma` to have positive number{limit}. Got [{text}].")
        axes = []
        for i, (kernel_size, sigma) in enumerate(zip(sizes, sigmas, strict=True)):
            taps = 2 * int(3.5 * sigma + 0.5) + 1 if self.gaussian else kernel_size
            pad = 0 if self.valid else ((kernel_size if i == 2 else taps) - 1) // 2
            axes.append(_Axis(self.preds.shape[2 + i], taps, pad))
        return axes

    def check(self) -> None:
        check_images(self.preds, self.target)
        shape = list(self.preds.shape)
        for dimension, axis in enumerate(self.axes(), start=2):
            torch._check(
                axis.pad < axis.size or self.preds.shape[:2].numel() == 0,
                lambda axis=axis, dimension=dimension: (
                    "Padding size should be less than the corresponding input dimension, but got: "
                    f"padding {axis.pad} at dimension {dimension} of input {shape}. "
                    f"Use larger images or, by a smaller {self._size(dimension)}, a smaller window."
                    f"{self._channels_last_advice()}"
                ),
            )
            torch._check(
                axis.positions > 0,
                lambda axis=axis, dimension=dimension: (
                    "Calculated padded input size per channel is smaller than the window of "
                    f"{axis.taps} taps at dimension {dimension} of input {shape}. "
                    "Use larger images."
                ),
            )

    def _size(self, dimension: int) -> str:
        return "`sigma`" if self.gaussian and dimension < 4 else "`kernel_size`"

    def _channels_last_advice(self) -> str:
        if not 0 < self.preds.shape[-1] <= _MOST_CHANNELS:
            return ""
        return " Channels that come last are moved with `.movedim(-1, 1)`."

    def _per_axis(self, name: str, given: Sequence[Any]) -> list[Any]:
        if len(given) == 1:
            return [given[0]] * (self.preds.ndim - 2)
        check_count(name, given, self.preds)
        return list(given)

    def empty(self, shape: Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
        return self.preds.new_empty(shape, dtype=dtype or floating(self.preds))

    def values(self, dtype: torch.dtype | None = None) -> Tensor:
        """A tensor for one value, or for one per image."""
        each = self.reduction == REDUCTIONS["none"]
        return self.empty(self.preds.shape[:1] if each else (), dtype)


Results = Callable[[_Arguments, torch.dtype | None], Any]


def _fake(results: Results) -> Callable[..., Any]:
    def fake(*given: Any) -> Any:
        arguments = _Arguments(*given)
        arguments.check()
        return results(arguments, None)

    return fake


def _fake_update(results: Results) -> Callable[..., Any]:
    """The value has the dtype of the state that it is added to."""

    def fake(
        preds: Tensor, target: Tensor, similarity: Tensor, total: Tensor, *options: Any
    ) -> Any:
        arguments = _Arguments(preds, target, *options)
        arguments.check()
        if arguments.reduction == REDUCTIONS["none"]:
            raise ValueError(
                "Expected `reduction` to be a mean or a sum where values are added to states."
            )
        check_running_mean(similarity, total, preds)
        return results(arguments, similarity.dtype)

    return fake


def _value_and_map(arguments: _Arguments, value_dtype: torch.dtype | None) -> tuple[Tensor, Tensor]:
    positions = [axis.positions for axis in arguments.axes()]
    full = arguments.empty([*arguments.preds.shape[:2], *positions])
    return arguments.values(value_dtype), full


def _value_and_contrast(
    arguments: _Arguments, value_dtype: torch.dtype | None
) -> tuple[Tensor, Tensor]:
    return arguments.values(value_dtype), arguments.empty(arguments.preds.shape[:1])


def _psnr_ssim_and_error(
    arguments: _Arguments, value_dtype: torch.dtype | None
) -> tuple[Tensor, Tensor, Tensor]:
    wide = torch.float64 if arguments.preds.dtype == torch.float64 else torch.float32
    return arguments.values(wide), arguments.values(value_dtype), arguments.values(wide)


def _bind_update(name: str, results: Results) -> Callable[..., Any]:
    return bind(name, _fake_update(results), ignores_gradient=True)


ssim = bind("ssim", _fake(_Arguments.values))
ssim_with_map = bind("ssim_with_map", _fake(_value_and_map))
ssim_with_contrast = bind("ssim_with_contrast", _fake(_value_and_contrast))
image_quality = bind("image_quality", _fake(_psnr_ssim_and_error))
ssim_update = _bind_update("ssim_update", _Arguments.values)
ssim_update_with_map = _bind_update("ssim_update_with_map", _value_and_map)
ssim_update_with_contrast = _bind_update("ssim_update_with_contrast", _value_and_contrast)
