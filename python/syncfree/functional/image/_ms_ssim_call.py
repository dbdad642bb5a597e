"""Calls the MS-SSIM ops, in TorchMetrics' definition, for the function and the class alike."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling

from syncfree._ops.ms_ssim import multiscale_ssim, multiscale_ssim_update
from syncfree._ops.ms_ssim_backward import DifferentiableMultiscaleSsim
from syncfree._ops.quick_calls import checking_images
from syncfree.functional._arguments import require_summed
from syncfree.functional._gradients import refuse_forward_mode, with_gradient
from syncfree.functional.image._images import as_images
from syncfree.functional.image._options import normalize_code
from syncfree.functional.image._ssim_arguments import ssim_arguments, ssim_arguments_of_options


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
    preds, target = as_images(preds, target)
    arguments = _arguments(ssim_arguments(preds, target, *options[:-2]), *options[-2:])
    return with_gradient(multiscale_ssim, DifferentiableMultiscaleSsim, preds, target, *arguments)


def _update_of_any(
    preds: Tensor, target: Tensor, similarity: Tensor | None, total: Tensor, *options: Any
) -> Any:
    require_summed(similarity, total)
    preds, target = as_images(preds, target)
    if forward_ad._current_level >= 0:
        refuse_forward_mode(multiscale_ssim_update, preds, target)
    arguments = _arguments(ssim_arguments(preds, target, *options[:-2]), *options[-2:])
    return multiscale_ssim_update(preds, target, similarity, total, *arguments)


def _arguments(of_ssim: tuple[Any, ...], betas: Any, normalize: Any) -> tuple[Any, ...]:
    *arguments, reduction, _ = of_ssim  # the last is `valid`, for presets
    return *arguments, betas, normalize_code(normalize), reduction


def _arguments_of_options(of_bytes: bool, *options: Any) -> tuple[Any, ...] | None:
    of_ssim = ssim_arguments_of_options(of_bytes, *options[:-2])
    return None if of_ssim is None else _arguments(of_ssim, *options[-2:])


_value = checking_images(multiscale_ssim, _arguments_of_options, _value_of_any)
_update = checking_images(
    multiscale_ssim_update, _arguments_of_options, _update_of_any, 2, has_gradient=False
)
