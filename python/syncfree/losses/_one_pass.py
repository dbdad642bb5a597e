"""Losses whose gradients come with their value, in one pass over the images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling

from syncfree._capture import is_capturing
from syncfree._ops.ssim_backward import gradients_of
from syncfree._ops.ssim_with_gradients import scale, ssim_gives_gradients, ssim_with_gradients
from syncfree.functional._gradients import is_transformed
from syncfree.functional.image._images import as_images
from syncfree.functional.image.ssim import ssim_arguments

# Smaller images have kernels of their own, which give gradients alone, and rows that are no whole
# vectors of pixels take two passes: not worth the question.
_LEAST_SIZE = 192
_VECTOR = 4


def loss_in_one_pass(
    preds: Tensor,
    target: Tensor,
    weight: float,
    data_range: float | tuple[float, float],
    **options: Any,
) -> Tensor | None:
    """``weight * (1 - SSIM) + (1 - weight) * mean absolute error`` if it goes this way.

    Where somebody wants a gradient and a kernel gives it with the value. torch.compile cannot keep
    what `SsimLoss` keeps, nor can the graph of a forward pass know how often that of the backward
    pass is replayed. Who checkpoints activations or moves what is saved wants memory, not to find
    gradients in a pass that throws them away.
    """
    if is_dynamo_compiling() or not preds.is_cuda:
        return None
    shape = preds.shape
    if len(shape) != 4 or min(shape[2:]) < _LEAST_SIZE or shape[3] % _VECTOR or shape[0] == 0:
        return None
    if not torch.is_grad_enabled() or not (preds.requires_grad or target.requires_grad):
        return None
    if is_transformed() or forward_ad._current_level >= 0 or is_capturing() or _moves_saved():
        return None
    preds, target = as_images(preds, target)
    arguments = ssim_arguments(preds, target, data_range, **options)
    ask = getattr(ssim_gives_gradients, "_op", ssim_gives_gradients)
    if not ask(preds, target, *arguments):
        return None
    loss: Tensor = SsimLoss.apply(preds, target, weight, arguments)  # type: ignore[no-untyped-call]
    return loss


class SsimLoss(torch.autograd.Function):
    """Finds the gradients in the forward pass, as if 1 arrived for the loss.

    They are kept for the first backward pass, which multiplies them in place by what does arrive.
    Any other pass finds them anew: whoever has the first ones may have changed them. So does one
    that is captured, for a graph may be replayed, and one for several gradients at once.
    """

    @staticmethod
    def forward(
        ctx: Any, preds: Tensor, target: Tensor, weight: float, options: tuple[Any, ...]
    ) -> Tensor:
        needs = ctx.needs_input_grad[:2]
        find = getattr(ssim_with_gradients, "_op", ssim_with_gradients)
        similarity, error, *ctx.gradients = find(
            preds, target, -weight, 1 - weight, *needs, *options
        )
        ctx.save_for_backward(preds, target)
        ctx.weight = weight
        ctx.options = options
        # One launch for each, where `weight * (1 - similarity)` takes two.
        loss = torch.rsub(similarity, weight, alpha=weight)
        return loss if weight == 1 else torch.add(loss, error, alpha=1 - weight)

    @staticmethod
    def backward(ctx: Any, arrived: Tensor) -> Any:
        images = ctx.saved_tensors  # raises if they have changed
        gradients = vars(ctx).pop("gradients", None)  # at once, whatever other threads do
        differs = torch.is_grad_enabled() or _is_batched(arrived, images[0]) or is_capturing()
        if gradients is not None and not differs:
            scale(*gradients, arrived)
            needs = ctx.needs_input_grad[:2]
            kept = (g if need else None for g, need in zip(gradients, needs, strict=True))
            return *kept, None, None
        absolute_error = None
        if ctx.weight != 1:
            error = (1 - ctx.weight) / max(images[0].numel(), 1) * arrived
            absolute_error = error.expand(images[0].shape[:1])
        return gradients_of(ctx, images, -ctx.weight * arrived, absolute_error=absolute_error)


def _moves_saved() -> bool:
    """Whether what is saved for a backward pass goes elsewhere, as to the CPU or to nowhere."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None


def _is_batched(tensor: Tensor, plain: Tensor) -> bool:
    """Whether it stands for several, as under ``is_grads_batched=True``; ``plain`` does not."""
    keys = torch._C._dispatch_keys(tensor)
    # Asking for a key by its name takes ten times as long.
    if keys == torch._C._dispatch_keys(plain):
        return False
    return keys.has("Batched") or keys.has("FuncTorchBatched")
