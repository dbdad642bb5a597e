"""The SSIM loss as one autograd node, with gradients from the forward pass if possible."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling
from torch.jit._trace import is_tracing

from syncfree._capture import is_capturing
from syncfree._ops.gradient import Differentiable
from syncfree._ops.quick_calls import quicken_ssim_loss
from syncfree._ops.ssim import image_quality, ssim
from syncfree._ops.ssim_backward import gradients_of
from syncfree._ops.ssim_with_gradients import (
    may_scale,
    scale,
    ssim_gives_gradients,
    ssim_with_gradients,
)
from syncfree.functional._gradients import is_transformed
from syncfree.functional.image._images import as_images
from syncfree.functional.image._ssim_arguments import ssim_arguments

# Images below this size have kernels of their own, which give gradients alone, and rows that are no
# whole vectors of pixels take two passes: the op need not be asked.
_LEAST_SIZE = 192
_VECTOR = 4


def loss_as_one_node(
    preds: Tensor,
    target: Tensor,
    weight: float,
    data_range: float | tuple[float, float],
    **options: Any,
) -> Tensor | None:
    """``weight * (1 - SSIM) + (1 - weight) * mean absolute error``, or None if not possible so.

    The node serves only inputs that require a gradient. torch.compile cannot save what `SsimLoss`
    saves. Half-precision images have a form of their own (`wide_similarity`).
    """
    if is_dynamo_compiling() or preds.dtype not in (torch.float32, torch.float64):
        return None
    if not torch.is_grad_enabled() or not (preds.requires_grad or target.requires_grad):
        return None
    if is_transformed() or forward_ad._current_level >= 0:
        return None
    preds, target = as_images(preds, target)
    arguments = ssim_arguments(preds, target, data_range, **options)
    in_one_pass = _gives_gradients(preds, target, arguments)
    loss: Tensor = SsimLoss.quick(preds, target, weight, in_one_pass, arguments)
    return loss


def mixture(error: Tensor, similarity: Tensor, weight: float) -> Tensor:
    """`(1 - weight) * error + weight * (1 - similarity)` in two launches instead of four."""
    return torch.add(torch.rsub(similarity, weight, alpha=weight), error, alpha=1 - weight)


def _gives_gradients(preds: Tensor, target: Tensor, arguments: tuple[Any, ...]) -> bool:
    """Whether one kernel gives the gradients with the value, and that is of use here.

    Not during capture: the graph of a forward pass cannot know how often the graph of the backward
    pass is replayed. Not under torch.jit.trace, which takes no operator that returns a bool. Not
    with activation checkpoints or hooks that move saved tensors: these are used to save memory, and
    a checkpointed forward pass would throw the gradients away.
    """
    if not preds.is_cuda or preds.is_nested or is_tracing():
        return False
    shape = preds.shape
    if len(shape) != 4 or min(shape[2:]) < _LEAST_SIZE:
        return False
    if shape[3] % _VECTOR or shape[0] == 0 or is_capturing() or _moves_saved():
        return False
    ask = getattr(ssim_gives_gradients, "_op", ssim_gives_gradients)
    return bool(ask(preds, target, *arguments))


class SsimLoss(Differentiable):
    """With ``in_one_pass``, also computes the gradients in the forward pass, as if 1 came in.

    They are kept for the first backward pass, which multiplies them in place by the gradient that
    does come in. Any later pass computes them anew, because the first one's caller may have changed
    them. So do a captured pass, whose graph may be replayed, and a pass for a batch of gradients.
    """

    @staticmethod
    def forward(
        ctx: Any,
        preds: Tensor,
        target: Tensor,
        weight: float,
        in_one_pass: bool,
        options: tuple[Any, ...],
    ) -> Tensor:
        ctx.save_for_backward(preds, target)
        ctx.set_materialize_grads(False)
        ctx.weight = weight
        ctx.options = options
        loss: Tensor
        if in_one_pass:
            needs = ctx.needs_input_grad[:2]
            loss, *ctx.gradients = ssim_with_gradients(preds, target, weight, *needs, *options)
        elif weight == 1:
            loss = 1 - ssim(preds, target, *options)
        else:
            _, similarity, error = image_quality(preds, target, *options[:-1])  # with borders
            loss = mixture(error, similarity, weight)
        return loss

    @staticmethod
    def backward(ctx: Any, arrived: Tensor | None) -> Any:
        if arrived is None:
            return (None,) * 5
        images = ctx.saved_tensors  # raises if they have changed
        gradients = vars(ctx).pop("gradients", None)  # atomic, in case other threads do it too
        differs = torch.is_grad_enabled() or _is_batched(arrived, images[0]) or is_tracing()
        if gradients is not None and not differs and may_scale(*gradients, arrived):
            scale(*gradients, arrived)
            needs = ctx.needs_input_grad[:2]
            kept = (g if need else None for g, need in zip(gradients, needs, strict=True))
            return *kept, None, None, None
        absolute_error = None
        if ctx.weight != 1:
            error = (1 - ctx.weight) / max(images[0].numel(), 1) * arrived
            absolute_error = error.expand(images[0].shape[:1])
        return gradients_of(ctx, images, -ctx.weight * arrived, absolute_error=absolute_error)


quicken_ssim_loss(SsimLoss)


def _moves_saved() -> bool:
    """Whether hooks move what is saved for the backward pass, such as to the CPU, or drop it."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None


def _is_batched(tensor: Tensor, plain: Tensor) -> bool:
    """Whether the tensor stands for a batch (``is_grads_batched=True``); ``plain`` does not."""
    keys = torch._C._dispatch_keys(tensor)
    # Asking for a key by its name takes ten times as long.
    if keys == torch._C._dispatch_keys(plain):
        return False
    return keys.has("Batched") or keys.has("FuncTorchBatched")
