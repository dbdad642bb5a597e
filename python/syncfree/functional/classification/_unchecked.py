"""Shapes that TorchMetrics accepts if it does not validate, and that have only one meaning."""

from __future__ import annotations

from typing import Any

from syncfree._ops import accuracy as ops

_MICRO = ops.AVERAGES["micro"]
_SAMPLEWISE, _ = ops.pack_options("micro", True, None, False)
_MULTICLASS, _MULTILABEL = ops.task_bits("multiclass"), ops.task_bits("multilabel")


def in_shapes_of_ops(
    tensors: tuple[Any, ...], own: tuple[Any, ...], options: int
) -> tuple[Any, ...]:
    """The tensors of a call; a batch in such shapes, which the ops refuse, is reshaped for them."""
    if options & ops.VALIDATE:
        return tensors
    preds, target, *rest = tensors
    if options & _SAMPLEWISE:
        if target.ndim == (2 if options & _MULTILABEL else 1):
            return preds[..., None], target[..., None], *rest  # each sample is one element
    elif options & _MULTICLASS and options & 3 == _MICRO and preds.ndim == target.ndim + 1:
        num_classes, top_k = own
        if top_k == 1 and preds.shape[1] not in (0, num_classes) and preds.is_floating_point():
            return preds.argmax(1), target, *rest  # right or wrong, however many classes there are
    return tensors
