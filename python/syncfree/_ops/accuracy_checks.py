"""The shape checks of the accuracy ops, for their fakes.

csrc/ops/accuracy_checks.cpp, and accuracy_arguments.cpp for a list of k, make the same checks in
the same order, with the same messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from syncfree._ops.checks import check_same_shape

MOST_TOP_K = 32  # as in csrc/accuracy/accuracy.h
_MOST_CLASSES = 2**31 - 1
_ONE_HOT_ADVICE = " If `target` is one-hot, pass `target.argmax(1)`."


def _classes_advice(preds: Tensor, target: Tensor) -> str:
    first, *rest = target.shape or (-1,)
    if preds.ndim != target.ndim + 1 or [preds.shape[0], *preds.shape[2:]] != [first, *rest]:
        return ""
    if preds.shape[1] == 1:
        return " Pass `preds.squeeze(1)`."
    return " Scores of several classes are for `multiclass_accuracy`."


def _has_classes(tensor: Tensor, num_classes: int) -> bool:
    return num_classes != 0 and tensor.ndim >= 2 and bool(tensor.shape[1] == num_classes)


def check_elements(preds: Tensor, target: Tensor, least_dims: int, samplewise: bool) -> None:
    """Checks the inputs of binary and multilabel accuracy, which have the same shape."""
    check_same_shape(preds, target, _classes_advice)
    shape = list(target.shape)
    if target.ndim < least_dims:
        raise ValueError(
            f"Expected `preds` and `target` to be at least {least_dims}D, but got shape {shape}."
        )
    if samplewise and target.ndim <= least_dims:
        raise ValueError(
            f"Expected input to be at least {least_dims + 1}D when multidim_average is set to "
            f"`samplewise`, but got shape {shape}."
        )


def check_sizes(a: Sequence[int], b: Sequence[int], message: Callable[[], str]) -> None:
    """Raises ValueError unless the two shapes are equal."""
    torch._check_value(len(a) == len(b), message)
    for first, second in zip(a, b, strict=True):
        torch._check_value(first == second, message)


def check_classes(num_classes: int, top_k: int, is_micro: bool) -> None:
    """Checks the number of classes, 0 if it is unknown, and ``top_k``."""
    if not 0 <= num_classes <= _MOST_CLASSES:
        raise ValueError(
            f"Expected argument `num_classes` to be at most {_MOST_CLASSES}, or 0 where it is "
            f"unknown, but got {num_classes}."
        )
    if num_classes == 0 and not (is_micro and top_k == 1):
        raise ValueError(
            "Argument `num_classes` can only be `None` for `average='micro'` and `top_k=1`."
        )
    if top_k < 1 or (num_classes != 0 and top_k > num_classes):
        raise ValueError(
            "Expected argument `top_k` to be an integer of 1 to `num_classes`, but got "
            f"{top_k} and {num_classes}."
        )


def check_class_scores(preds: Tensor, target: Tensor, num_classes: int, samplewise: bool) -> None:
    """Checks ``preds`` with a score for each class and ``target`` with labels."""
    case = "If `preds` have one dimension more than `target`, "
    shape, target_shape = list(preds.shape), list(target.shape)
    if not preds.is_floating_point():
        raise ValueError(
            f"{case}`preds` should be a float tensor, but got integers of shape {shape}. Labels "
            f"have the shape of `target`, {target_shape}."
        )
    if target.ndim < 1:
        raise ValueError(f"{case}`target` should be at least 1D, but got a scalar.")
    if num_classes != 0:
        torch._check_value(
            preds.shape[1] == num_classes,
            lambda: (
                f"{case}`preds.shape[1]` should be equal to number of classes, but got shape "
                f"{shape} and num_classes={num_classes}."
            ),
        )
    check_sizes(
        [preds.shape[0], *preds.shape[2:]],
        target.shape,
        lambda: (
            f"{case}the shape of `preds` should be (N, C, ...), and the shape of `target` should "
            f"be (N, ...), but got {shape} and {target_shape}."
        ),
    )
    torch._check_value(
        preds.shape[1] != 0,
        lambda: f"{case}`preds` should have at least one class, but got shape {shape}.",
    )
    if samplewise and preds.ndim < 3:
        raise ValueError(
            f"{case}the shape of `preds` should be at least 3D when multidim_average is set to "
            f"`samplewise`, but got {shape}."
        )


def check_class_labels(
    preds: Tensor,
    target: Tensor,
    num_classes: int,
    top_k: int,
    samplewise: bool,
    validates: bool,
) -> None:
    """Checks ``preds`` and ``target`` that both hold labels."""
    shape, target_shape = list(preds.shape), list(target.shape)
    if preds.ndim != target.ndim:
        one_hot = target.ndim == preds.ndim + 1 and _has_classes(target, num_classes)
        raise ValueError(
            "Either `preds` and `target` both should have the (same) shape (N, ...), or `target` "
            f"should be (N, ...) and `preds` should be (N, C, ...), but got {shape} and "
            f"{target_shape}.{_ONE_HOT_ADVICE if one_hot else ''}"
        )

    def different_shapes() -> str:
        column = _has_classes(preds, num_classes) and target.shape[1] == 1
        advice = " If `preds` are scores, pass `target.squeeze(1)`." if column else ""
        return (
            f"The `preds` and `target` should have the same shape, got `preds` with shape={shape} "
            f"and `target` with shape={target_shape}.{advice}"
        )

    check_sizes(preds.shape, target.shape, different_shapes)
    if (
        (validates or top_k != 1)
        and preds.is_floating_point()
        and _has_classes(target, num_classes)
    ):
        raise ValueError(
            "Expected `target` of shape (N, ...) beside scores of shape (N, C, ...), but both have "
            f"shape {shape} with num_classes={num_classes}.{_ONE_HOT_ADVICE} If `preds` are "
            "labels, convert them with `.long()`."
        )
    if target.ndim < 1:
        raise ValueError("Expected `preds` and `target` to be at least 1D, but got scalars.")
    if samplewise and preds.ndim < 2:
        raise ValueError(
            "When `preds` and `target` have the same shape, the shape of `preds` should be at "
            f"least 2D when multidim_average is set to `samplewise`, but got {shape}."
        )
    if top_k != 1:
        raise ValueError(
            "Expected `preds` of shape (N, C, ...) with a score for each class where `top_k` is "
            f"larger than 1, but got labels of shape {shape} and top_k={top_k}."
        )


def check_several_top_k(
    preds: Tensor, target: Tensor, num_classes: int, top_k: Sequence[int]
) -> None:
    """Checks a list of k and its inputs, which have to be scores."""
    if not 1 <= len(top_k) <= MOST_TOP_K:
        raise ValueError(
            f"Expected argument `top_k` to hold 1 to {MOST_TOP_K} integers, but got {len(top_k)}."
        )
    for k in top_k:
        if k < 1:
            raise ValueError(
                f"Expected argument `top_k` to hold integers of 1 to `num_classes`, but got {k}."
            )
    if preds.ndim == target.ndim:
        advice = _ONE_HOT_ADVICE if _has_classes(target, num_classes) else ""
        raise ValueError(
            "Expected `preds` of shape (N, C, ...) with a score for each class where `top_k` is a "
            f"list, but got labels of shape {list(preds.shape)}.{advice}"
        )
