"""Accuracy from scores or labels: binary, multiclass and multilabel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from torch import Tensor
from torch.compiler import is_dynamo_compiling

from syncfree._ops import accuracy as ops
from syncfree._torchmetrics import resolve
from syncfree.functional.classification._accuracy_arguments import (
    binary_arguments,
    multiclass_arguments,
    multilabel_arguments,
)
from syncfree.functional.classification._arguments import (
    parse_task,
    required_int,
    top_k_list,
)
from syncfree.functional.classification._call import call, checked

__all__ = ["accuracy", "binary_accuracy", "multiclass_accuracy", "multilabel_accuracy"]

_binary, _binary_in_graph = checked(ops.ACCURACY["binary"], binary_arguments)
_multiclass, _multiclass_in_graph = checked(ops.ACCURACY["multiclass"], multiclass_arguments)
_multilabel, _multilabel_in_graph = checked(ops.ACCURACY["multilabel"], multilabel_arguments)


def binary_accuracy(
    preds: Tensor,
    target: Tensor,
    threshold: float = 0.5,
    multidim_average: Literal["global", "samplewise"] = "global",
    ignore_index: int | None = None,
    validate_args: bool = True,
) -> Tensor:
    r"""Fraction of binary predictions that are right.

    .. math::
        \text{accuracy} = \frac{TP + TN}{TP + TN + FP + FN}

    One pass over the inputs on their device and the current stream; the host never waits.

    Args:
        preds: Scores or labels of shape ``(N, ...)``. Floating scores (float16, bfloat16, float32,
            float64) are probabilities, or logits if any of them lies outside [0, 1]; a NaN counts
            as neither and is never positive. Integers and bools are labels, 0 or 1.
        target: Labels 0 and 1 of the same shape and device; uint8, int8 to int64, bool or floating.
        threshold: A score (for logits, its sigmoid) is positive if it is strictly greater than
            this. It is rounded to the scores' dtype, in which the comparison happens.
        multidim_average: ``"global"`` counts all elements together, ``"samplewise"`` each sample
            separately, which needs at least two dimensions.
        ignore_index: Elements with this target are not counted.
        validate_args: Whether labels other than 0 and 1 (and ``ignore_index``) are errors. If
            false, elements with such a label are left out. Shapes and arguments are checked either
            way.

    Returns:
        A float32 tensor on the inputs' device: a scalar, or ``(N,)`` samplewise (a scalar if ``N``
        is 1, as in TorchMetrics). If no elements are counted, the value is 0.

    Raises:
        TypeError: If ``preds`` or ``target`` is not a dense tensor.
        ValueError: If an option is of a wrong type or out of range, or samplewise inputs lack a
            dimension.
        RuntimeError: If shapes or devices differ, or a label is bad. On CPU at once; on CUDA the
            value is NaN and ``syncfree.check_errors()`` raises.

    Reference:
        Sokolova and Lapalme, "A systematic analysis of performance measures for classification
        tasks", Information Processing and Management 45(4), 2009.

    Example:
        >>> import torch
        >>> from syncfree.functional.classification import binary_accuracy
        >>> target = torch.tensor([0, 1, 0, 1])
        >>> binary_accuracy(torch.tensor([0.2, 0.7, 0.6, 0.9]), target)
        tensor(0.7500)
        >>> binary_accuracy(torch.tensor([-3.0, 0.1, -0.2, -0.4]), target)  # logits
        tensor(0.7500)
    """
    run = _binary_in_graph if is_dynamo_compiling() else _binary
    value: Tensor = run(preds, target, threshold, multidim_average, ignore_index, validate_args)
    return value


def multiclass_accuracy(
    preds: Tensor,
    target: Tensor,
    num_classes: int | None = None,
    average: Literal["micro", "macro", "weighted", "none"] | None = "macro",
    top_k: int | Sequence[int] = 1,
    multidim_average: Literal["global", "samplewise"] = "global",
    ignore_index: int | None = None,
    validate_args: bool = True,
) -> Tensor:
    r"""Fraction of class predictions that are right, over all or for each class.

    .. math::
        \text{accuracy}_c = \frac{TP_c}{TP_c + FN_c}

    A prediction is right if fewer than ``top_k`` classes come before the target's class. Classes
    are ordered as by ``torch.argmax``: NaN before everything, equal scores by class index. One pass
    over the scores on their device and the current stream, without a copy of them; the host never
    waits. Where only right or wrong matters (every average but ``"macro"`` with ``top_k=1``)
    reading a row of scores stops as soon as it is known to be wrong, and ignored rows are not read.

    Args:
        preds: Scores ``(N, C, ...)`` of a floating dtype (float16, bfloat16, float32, float64), or
            labels ``(N, ...)``: integers, bools or whole numbers in a floating dtype; the latter
            count as scores if their second dimension is ``C``. Any strides, for example
            ``logits[:, :-1].transpose(1, 2)``; beyond eight dimensions the trailing ones are
            flattened, with a copy where strides do not allow a view.
        target: Labels ``(N, ...)`` on the same device, 0 to ``C - 1``; uint8, int8 to int64, bool,
            or whole numbers of a floating dtype.
        num_classes: ``C``, at least 2. ``None`` is possible with ``average="micro"`` and
            ``top_k=1``: then the labels have no known range, and none is out of range.
        average: ``"micro"`` counts all samples together. ``"none"`` (``None``) gives a value for
            each class. ``"macro"`` is their mean over the classes that occur among targets or, with
            ``top_k=1``, among predictions; ``"weighted"`` weights them by how often they are the
            target.
        top_k: How many of the highest scores may hold the target; 1 to ``num_classes``. Labels
            allow 1 only. A list or tuple of up to 32 such numbers, in any order, is answered in the
            same pass, because the target's rank is found once. Lists are for scores only, and
            TorchMetrics has none.
        multidim_average: ``"global"`` counts all positions together, ``"samplewise"`` those of each
            sample separately, which needs one more dimension.
        ignore_index: Positions with this target are not counted, whether or not it is a class.
        validate_args: Whether labels outside 0 to ``C - 1`` (and ``ignore_index``) are errors. If
            false, micro counts them as wrong and the other averages leave them out. Shapes and
            arguments are checked either way.

    Returns:
        A float32 tensor on the inputs' device: a scalar, or ``(C,)`` without average; samplewise
        ``(N,)`` or ``(N, C)``. If no positions are counted, the value is 0. If ``top_k`` is a list
        of ``K`` numbers, the shape begins with ``K``, in the order of the list; each entry has the
        same bits that its number alone gives.

    Raises:
        TypeError: If ``preds`` or ``target`` is not a dense tensor.
        ValueError: If an option is of a wrong type or out of range, a list of ``top_k`` is empty,
            or the shapes do not fit, for example scores with a one-hot target.
        RuntimeError: If the devices differ, or a label is out of range; the message has the number
            of such labels, the first one and its index. On CPU at once; on CUDA the value is NaN
            and ``syncfree.check_errors()`` raises.

    Reference:
        Sokolova and Lapalme, "A systematic analysis of performance measures for classification
        tasks", Information Processing and Management 45(4), 2009. The averages are those of
        scikit-learn's ``recall_score``, and ``top_k`` is that of its ``top_k_accuracy_score``.

    Example:
        >>> import torch
        >>> from syncfree.functional.classification import multiclass_accuracy
        >>> target = torch.tensor([2, 1, 0, 0])
        >>> scores = torch.tensor(
        ...     [[0.1, 0.3, 0.6], [0.2, 0.5, 0.3], [0.7, 0.2, 0.1], [0.3, 0.4, 0.3]]
        ... )
        >>> multiclass_accuracy(scores, target, num_classes=3)
        tensor(0.8333)
        >>> multiclass_accuracy(scores, target, num_classes=3, average=None)
        tensor([0.5000, 1.0000, 1.0000])
        >>> multiclass_accuracy(scores, target, num_classes=3, average="micro", top_k=2)
        tensor(1.)
        >>> multiclass_accuracy(scores, target, num_classes=3, average="micro", top_k=[1, 2])
        tensor([0.7500, 1.0000])
    """
    if isinstance(top_k, (list, tuple)):
        several = top_k_list(top_k)
        (classes, _), *rest = multiclass_arguments(
            num_classes, average, max(several), multidim_average, ignore_index, validate_args
        )
        values: Tensor = call(
            ops.multiclass_accuracy_top_k, (preds, target), (classes, several), *rest
        )
        return values
    run = _multiclass_in_graph if is_dynamo_compiling() else _multiclass
    value: Tensor = run(
        preds,
        target,
        num_classes,
        average,
        top_k,
        multidim_average,
        ignore_index,
        validate_args,
    )
    return value


def multilabel_accuracy(
    preds: Tensor,
    target: Tensor,
    num_labels: int,
    threshold: float = 0.5,
    average: Literal["micro", "macro", "weighted", "none"] | None = "macro",
    multidim_average: Literal["global", "samplewise"] = "global",
    ignore_index: int | None = None,
    validate_args: bool = True,
) -> Tensor:
    r"""Fraction of binary predictions that are right, over all or for each of several labels.

    .. math::
        \text{accuracy}_l = \frac{TP_l + TN_l}{TP_l + TN_l + FP_l + FN_l}

    One pass over the inputs on their device and the current stream; the host never waits.

    Args:
        preds: Scores or labels of shape ``(N, L, ...)``, read as by :func:`binary_accuracy`: one
            score outside [0, 1] makes all of them logits.
        target: Labels 0 and 1 of the same shape and device; uint8, int8 to int64, bool or floating.
        num_labels: ``L``, at least 2.
        threshold: A score (for logits, its sigmoid) is positive if it is strictly greater than
            this.
        average: ``"micro"`` counts all elements together. ``"none"`` (``None``) gives a value for
            each label, ``"macro"`` their mean, ``"weighted"`` their mean weighted by the labels'
            positives.
        multidim_average: ``"global"`` counts all samples together, ``"samplewise"`` each one
            separately, which needs at least three dimensions.
        ignore_index: Elements with this target are not counted.
        validate_args: Whether labels other than 0 and 1 (and ``ignore_index``) are errors. If
            false, elements with such a label are left out. Shapes and arguments are checked either
            way.

    Returns:
        A float32 tensor on the inputs' device: a scalar, or ``(L,)`` without average; samplewise
        ``(N,)`` or ``(N, L)``. As in TorchMetrics the dimension ``N`` is dropped if it is 1, except
        for micro, where TorchMetrics fails. If no elements are counted, the value is 0.

    Raises:
        TypeError: If ``preds`` or ``target`` is not a dense tensor.
        ValueError: If an option is of a wrong type or out of range, ``preds.shape[1]`` is not
            ``num_labels``, or samplewise inputs lack a dimension.
        RuntimeError: If shapes or devices differ, or a label is bad. On CPU at once; on CUDA the
            value is NaN and ``syncfree.check_errors()`` raises.

    Reference:
        Sokolova and Lapalme, "A systematic analysis of performance measures for classification
        tasks", Information Processing and Management 45(4), 2009.

    Example:
        >>> import torch
        >>> from syncfree.functional.classification import multilabel_accuracy
        >>> target = torch.tensor([[0, 1, 0], [1, 0, 1]])
        >>> preds = torch.tensor([[0.1, 0.9, 0.8], [0.7, 0.3, 0.9]])
        >>> multilabel_accuracy(preds, target, num_labels=3)
        tensor(0.8333)
        >>> multilabel_accuracy(preds, target, num_labels=3, average=None)
        tensor([1.0000, 1.0000, 0.5000])
    """
    run = _multilabel_in_graph if is_dynamo_compiling() else _multilabel
    value: Tensor = run(
        preds,
        target,
        num_labels,
        threshold,
        average,
        multidim_average,
        ignore_index,
        validate_args,
    )
    return value


def accuracy(
    preds: Tensor,
    target: Tensor,
    task: Literal["binary", "multiclass", "multilabel"],
    threshold: float = 0.5,
    num_classes: int | None = None,
    num_labels: int | None = None,
    average: Literal["micro", "macro", "weighted", "none"] | None = "micro",
    multidim_average: Literal["global", "samplewise"] = "global",
    top_k: int | Sequence[int] | None = 1,
    ignore_index: int | None = None,
    validate_args: bool = True,
) -> Tensor:
    """Accuracy for the task that ``task`` names.

    Args:
        preds: See the function of the task.
        target: See the function of the task.
        task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``, in upper or lower case, for
            :func:`binary_accuracy`, :func:`multiclass_accuracy` or :func:`multilabel_accuracy`.
        threshold: For binary and multilabel.
        num_classes: For multiclass, required there.
        num_labels: For multilabel, required there.
        average: For multiclass and multilabel; ``"micro"`` by default, unlike in their own
            functions.
        multidim_average: ``"global"`` or ``"samplewise"``.
        top_k: For multiclass; a list of them gives a value for each.
        ignore_index: Elements with this target are not counted.
        validate_args: Whether bad labels are errors.

    Returns:
        A float32 tensor as from the function of the task.

    Raises:
        TypeError: If ``preds`` or ``target`` is not a dense tensor.
        ValueError: If ``task`` is not one of the three, the task's ``num_classes``, ``num_labels``
            or ``top_k`` is not an integer (or a list of integers), or as in the function of the
            task.
        RuntimeError: As in the function of the task.

    Reference:
        Sokolova and Lapalme, "A systematic analysis of performance measures for classification
        tasks", Information Processing and Management 45(4), 2009.

    Example:
        >>> import torch
        >>> from syncfree.functional.classification import accuracy
        >>> preds, target = torch.tensor([0, 2, 1, 3]), torch.tensor([0, 1, 2, 3])
        >>> accuracy(preds, target, task="multiclass", num_classes=4)
        tensor(0.5000)
    """
    name = parse_task(task)
    if name == "binary":
        return binary_accuracy(
            preds, target, threshold, multidim_average, ignore_index, validate_args
        )
    if name == "multiclass":
        return multiclass_accuracy(
            preds,
            target,
            required_int("num_classes", num_classes, name),
            average,
            top_k if isinstance(top_k, (list, tuple)) else required_int("top_k", top_k, name),
            multidim_average,
            ignore_index,
            validate_args,
        )
    return multilabel_accuracy(
        preds,
        target,
        required_int("num_labels", num_labels, name),
        threshold,
        average,
        multidim_average,
        ignore_index,
        validate_args,
    )


def __getattr__(name: str) -> Any:
    return resolve(__name__, name, with_private=True)
