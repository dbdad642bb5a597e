"""Calls of MS-SSIM's ops, from the function and the class alike, by TorchMetrics' definition."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling

from syncfree._ops.ms_ssim import multiscale_ssim, multiscale_ssim_update
from syncfree._ops.ms_ssim_backward import DifferentiableMultiscaleSsim
from syncfree._ops.quick_calls import checking_images
from syncfree.functional._gradients import refuse_forward_mode, with_gradient
from syncfree.functional.image._images import as_images, require_scales
from syncfree.functional.image._options import check_betas, normalize_code
from syncfree.functional.image._ssim_arguments import ssim_arguments, ssim_arguments_of_any


def ms_ssim_of(preds: Tensor, target: Tensor, *options: Any) -> Any:
    """The value, for options of `ssim_arguments`, ``betas`` and ``normalize``."""
    call = _value_of_any if is_dynamo_compiling() else _value
    return call(preds, target, *options)


def ms_ssim_update_of(
    preds: Tensor, target: Tensor, similarity: Tensor | None, total: Tensor, *options: Any
) -> Any:
    """The same for a batch that is added to two states."""
    call = _update_of_any if is_dynamo_compiling() else _update
    return call(preds, target, similarity, total, *options)


def _value_of_any(preds: Tensor, target: Tensor, *options: Any) -> Any:
    preds, target, arguments = _arguments(preds, target, options)
    return with_gradient(multiscale_ssim, DifferentiableMultiscaleSsim, preds, target, *arguments)


def _update_of_any(
    preds: Tensor, target: Tensor, similarity: Tensor | None, total: Tensor, *options: Any
) -> Any:
    preds, target, arguments = _arguments(preds, target, options)
    if forward_ad._current_level >= 0:
        refuse_forward_mode(multiscale_ssim_update, preds, target)
    return multiscale_ssim_update(preds, target, similarity, total, *arguments)


def _arguments(
    preds: Tensor, target: Tensor, options: tuple[Any, ...]
) -> tuple[Tensor, Tensor, tuple[Any, ...]]:
    *of_ssim, betas, normalize = options
    scales = _arguments_of_scales(betas, normalize)
    preds, target = as_images(preds, target)
    arguments = ssim_arguments(preds, target, *of_ssim)
    require_scales(preds, target, len(betas), arguments[2])
    return preds, target, _joined(arguments, scales)


def _arguments_of_any(of_bytes: bool, *options: Any) -> tuple[Any, ...] | None:
    *of_ssim, betas, normalize = options
    scales = _arguments_of_scales(betas, normalize)
    arguments = ssim_arguments_of_any(of_bytes, *of_ssim)
    return None if arguments is None else _joined(arguments, scales)


def _arguments_of_scales(betas: Any, normalize: Any) -> tuple[Any, int]:
    check_betas(betas)
    return betas, normalize_code(normalize)


def _joined(of_ssim: tuple[Any, ...], of_scales: tuple[Any, int]) -> tuple[Any, ...]:
    *arguments, reduction, _ = of_ssim  # the last is of presets
    return *arguments, *of_scales, reduction


_value = checking_images(multiscale_ssim, _arguments_of_any, _value_of_any)
_update = checking_images(multiscale_ssim_update, _arguments_of_any, _update_of_any, 2)
