"""Calls the SSIM ops, for functions and classes alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.compiler import is_dynamo_compiling

from syncfree._ops import ssim as _ops
from syncfree._ops import ssim_backward as _backward
from syncfree._ops.gradient import Differentiable
from syncfree._ops.quick_calls import checking_images
from syncfree.functional._arguments import require_summed
from syncfree.functional._gradients import with_gradient
from syncfree.functional.image._images import as_images
from syncfree.functional.image._ssim_arguments import ssim_arguments, ssim_arguments_of_options


def ssim_of(extra: str | None, preds: Tensor, target: Tensor, *options: Any) -> Any:
    """The value, or a pair with the ``extra`` result, for the options of `ssim_arguments`."""
    quick, in_graph = _VALUES[extra]
    return (in_graph if is_dynamo_compiling() else quick)(preds, target, *options)


def ssim_update_of(
    extra: str | None, preds: Tensor, target: Tensor, *states_and_options: Any
) -> Any:
    """The same for a batch that is added to two states, which come before the options."""
    quick, in_graph = _UPDATES[extra]
    return (in_graph if is_dynamo_compiling() else quick)(preds, target, *states_and_options)


def _ways(
    op: Any, differentiable: type[Differentiable], states: int = 0
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Two functions: one that makes quick calls, and one that torch.compile can trace."""

    def of_any(preds: Tensor, target: Tensor, *others: Any) -> Any:
        require_summed(*others[:states])
        preds, target = as_images(preds, target)
        arguments = ssim_arguments(preds, target, *others[states:])
        return with_gradient(op, differentiable, preds, target, *others[:states], *arguments)

    return checking_images(op, ssim_arguments_of_options, of_any, states), of_any


_VALUES = {
    None: _ways(_ops.ssim, _backward.DifferentiableSsim),
    "map": _ways(_ops.ssim_with_map, _backward.DifferentiableSsimWithMap),
    "contrast": _ways(_ops.ssim_with_contrast, _backward.DifferentiableSsimWithContrast),
}
_UPDATES = {
    None: _ways(_ops.ssim_update, _backward.DifferentiableSsimUpdate, 2),
    "map": _ways(_ops.ssim_update_with_map, _backward.DifferentiableSsimUpdateWithMap, 2),
    "contrast": _ways(
        _ops.ssim_update_with_contrast, _backward.DifferentiableSsimUpdateWithContrast, 2
    ),
}
