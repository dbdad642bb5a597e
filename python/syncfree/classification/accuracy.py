"""Accuracy over many batches: binary, multiclass and multilabel."""

from __future__ import annotations

from typing import Any, Literal

import torchmetrics.classification as tm

from syncfree._keywords import naming_unknown
from syncfree._torchmetrics import resolve
from syncfree.classification._counting import CountingMetric
from syncfree.functional.classification._accuracy_arguments import (
    binary_arguments,
    multiclass_arguments,
    multilabel_arguments,
)
from syncfree.functional.classification._arguments import (
    Average,
    MultidimAverage,
    parse_task,
    required_int,
)

__all__ = ["Accuracy", "BinaryAccuracy", "MulticlassAccuracy", "MultilabelAccuracy"]


class BinaryAccuracy(CountingMetric, tm.BinaryAccuracy):
    """Fraction of binary predictions that are right, of all since the last reset.

    It has the arguments, states and results of TorchMetrics' class of the same name. `update` and
    `forward` are one launch each (two for `forward` where samples are counted separately) and the
    host never waits. The states keep their memory, so that a captured CUDA graph of either keeps
    counting. :func:`syncfree.functional.binary_accuracy` describes shapes, dtypes and edge cases.

    A bad label on CUDA is left out of the counts and turns the value into NaN until `reset`; the
    next call of the metric, `compute` or ``syncfree.check_errors()`` raises and names the call that
    passed it. On the CPU that call itself raises and counts nothing.

    Args:
        threshold: A score above it is positive.
        multidim_average: ``"global"`` counts all elements together; ``"samplewise"`` those of each
            sample separately, and the value has one element for each sample seen.
        ignore_index: Elements with this target are not counted.
        validate_args: Whether bad labels are errors.
        kwargs: TorchMetrics' ``Metric`` arguments, for example ``dist_sync_on_step``.

    Raises:
        ValueError: If an argument is out of range.

    Reference:
        Sokolova and Lapalme, "A systematic analysis of performance measures for classification
        tasks", Information Processing and Management 45(4), 2009.

    Example:
        >>> import torch
        >>> from syncfree.classification import BinaryAccuracy
        >>> metric = BinaryAccuracy()
        >>> metric(torch.tensor([0.2, 0.7, 0.6, 0.9]), torch.tensor([0, 1, 0, 1]))
        tensor(0.7500)
        >>> metric.update(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 1, 1, 1]))
        >>> metric.compute()
        tensor(0.8750)
    """

    def __init__(
        self,
        threshold: float = 0.5,
        multidim_average: MultidimAverage = "global",
        ignore_index: int | None = None,
        validate_args: bool = True,
        **kwargs: Any,
    ) -> None:
        shared = multidim_average, ignore_index, validate_args
        binary_arguments(threshold, *shared)
        super().__init__(threshold, *shared, **kwargs)
        self._prepare()

    def _op_arguments(self) -> tuple[str, int, tuple[Any, ...]]:
        shared = self.multidim_average, self.ignore_index, self.validate_args
        return "binary", 1, binary_arguments(self.threshold, *shared)


class MulticlassAccuracy(CountingMetric, tm.MulticlassAccuracy):
    """Fraction of multiclass predictions that are right, of all since the last reset.

    It has the arguments, states and results of TorchMetrics' class of the same name. Launches,
    graphs and bad labels are as in :class:`BinaryAccuracy`;
    :func:`syncfree.functional.multiclass_accuracy` describes shapes, dtypes, averages and edge
    cases.

    Args:
        num_classes: Number of classes; may be left out for ``average="micro"`` and ``top_k=1``.
        top_k: A prediction is right if the target is among this many highest scores. Only one
            number, because the states count for one;
            :func:`syncfree.functional.multiclass_accuracy` also takes a list.
        average: ``"micro"`` over all elements, ``"macro"`` over classes, ``"weighted"`` over
            classes by their frequency, ``"none"`` or ``None`` for one value for each class.
        multidim_average: ``"global"`` counts all elements together; ``"samplewise"`` those of each
            sample separately, and the value has one row for each sample seen.
        ignore_index: Elements with this target are not counted.
        validate_args: Whether bad labels are errors.
        kwargs: TorchMetrics' ``Metric`` arguments, for example ``dist_sync_on_step``.

    Raises:
        ValueError: If an argument is out of range.

    Reference:
        Sokolova and Lapalme, "A systematic analysis of performance measures for classification
        tasks", Information Processing and Management 45(4), 2009. The averages are those of
        scikit-learn's ``recall_score``, and ``top_k`` is that of its ``top_k_accuracy_score``.

    Example:
        >>> import torch
        >>> from syncfree.classification import MulticlassAccuracy
        >>> metric = MulticlassAccuracy(num_classes=3, average="micro")
        >>> metric(torch.tensor([2, 1, 0, 1]), torch.tensor([2, 1, 0, 0]))
        tensor(0.7500)
        >>> scores = torch.tensor([[0.1, 0.8, 0.1], [0.2, 0.1, 0.7]])
        >>> metric.update(scores, torch.tensor([1, 0]))
        >>> metric.compute()
        tensor(0.6667)
    """

    def __init__(
        self,
        num_classes: int | None = None,
        top_k: int = 1,
        average: Average = "macro",
        multidim_average: MultidimAverage = "global",
        ignore_index: int | None = None,
        validate_args: bool = True,
        **kwargs: Any,
    ) -> None:
        shared = multidim_average, ignore_index, validate_args
        with naming_unknown(kwargs):
            multiclass_arguments(num_classes, average, top_k, *shared)
        super().__init__(num_classes, top_k, average, *shared, **kwargs)
        self._prepare()

    def _op_arguments(self) -> tuple[str, int, tuple[Any, ...]]:
        shared = self.multidim_average, self.ignore_index, self.validate_args
        arguments = multiclass_arguments(self.num_classes, self.average, self.top_k, *shared)
        return "multiclass", arguments[0][1], arguments


class MultilabelAccuracy(CountingMetric, tm.MultilabelAccuracy):
    """Fraction of multilabel predictions that are right, of all since the last reset.

    It has the arguments, states and results of TorchMetrics' class of the same name. Launches,
    graphs and bad labels are as in :class:`BinaryAccuracy`;
    :func:`syncfree.functional.multilabel_accuracy` describes shapes, dtypes, averages and edge
    cases.

    Args:
        num_labels: Number of labels, the second dimension of the inputs.
        threshold: A score above it is positive.
        average: ``"micro"`` over all elements, ``"macro"`` over labels, ``"weighted"`` over labels
            by their frequency, ``"none"`` or ``None`` for one value for each label.
        multidim_average: ``"global"`` counts all elements together; ``"samplewise"`` those of each
            sample separately, and the value has one row for each sample seen.
        ignore_index: Elements with this target are not counted.
        validate_args: Whether bad labels are errors.
        kwargs: TorchMetrics' ``Metric`` arguments, for example ``dist_sync_on_step``.

    Raises:
        ValueError: If an argument is out of range.

    Reference:
        Sokolova and Lapalme, "A systematic analysis of performance measures for classification
        tasks", Information Processing and Management 45(4), 2009.

    Example:
        >>> import torch
        >>> from syncfree.classification import MultilabelAccuracy
        >>> metric = MultilabelAccuracy(num_labels=3)
        >>> target = torch.tensor([[0, 1, 0], [1, 0, 1]])
        >>> metric(torch.tensor([[0.1, 0.7, 0.2], [0.6, 0.6, 0.9]]), target)
        tensor(0.8333)
        >>> metric.update(target, target)
        >>> metric.compute()
        tensor(0.9167)
    """

    def __init__(
        self,
        num_labels: int,
        threshold: float = 0.5,
        average: Average = "macro",
        multidim_average: MultidimAverage = "global",
        ignore_index: int | None = None,
        validate_args: bool = True,
        **kwargs: Any,
    ) -> None:
        shared = multidim_average, ignore_index, validate_args
        multilabel_arguments(num_labels, threshold, average, *shared)
        super().__init__(num_labels, threshold, average, *shared, **kwargs)
        self._prepare()

    def _op_arguments(self) -> tuple[str, int, tuple[Any, ...]]:
        shared = self.multidim_average, self.ignore_index, self.validate_args
        arguments = multilabel_arguments(self.num_labels, self.threshold, self.average, *shared)
        return "multilabel", 1, arguments


class Accuracy(tm.Accuracy):
    """Makes a metric of the accuracy class for the task that ``task`` names.

    Args:
        task: ``"binary"``, ``"multiclass"`` or ``"multilabel"``, in upper or lower case.
        threshold: See :class:`BinaryAccuracy` and :class:`MultilabelAccuracy`.
        num_classes: See :class:`MulticlassAccuracy`, but required here for that task.
        num_labels: See :class:`MultilabelAccuracy`; required for that task.
        average: ``"micro"`` by default, unlike in the classes themselves.
        multidim_average: ``"global"`` or ``"samplewise"``.
        top_k: See :class:`MulticlassAccuracy`.
        ignore_index: Elements with this target are not counted.
        validate_args: Whether bad labels are errors.
        kwargs: TorchMetrics' ``Metric`` arguments.

    Returns:
        A BinaryAccuracy, MulticlassAccuracy or MultilabelAccuracy.

    Raises:
        ValueError: If ``task`` is not one of the three, or an argument is out of range.

    Reference:
        Sokolova and Lapalme, "A systematic analysis of performance measures for classification
        tasks", Information Processing and Management 45(4), 2009.

    Example:
        >>> import torch
        >>> from syncfree.classification import Accuracy
        >>> metric = Accuracy(task="multiclass", num_classes=4)
        >>> metric(torch.tensor([0, 2, 1, 3]), torch.tensor([0, 1, 2, 3]))
        tensor(0.5000)
    """

    def __new__(  # type: ignore[misc]  # noqa: D102
        cls,
        task: Literal["binary", "multiclass", "multilabel"],
        threshold: float = 0.5,
        num_classes: int | None = None,
        num_labels: int | None = None,
        average: Average = "micro",
        multidim_average: MultidimAverage = "global",
        top_k: int | None = 1,
        ignore_index: int | None = None,
        validate_args: bool = True,
        **kwargs: Any,
    ) -> BinaryAccuracy | MulticlassAccuracy | MultilabelAccuracy:
        name = parse_task(task)
        shared = multidim_average, ignore_index, validate_args
        if name == "binary":
            return BinaryAccuracy(threshold, *shared, **kwargs)
        if name == "multiclass":
            return MulticlassAccuracy(
                required_int("num_classes", num_classes, name),
                required_int("top_k", top_k, name),
                average,
                *shared,
                **kwargs,
            )
        return MultilabelAccuracy(
            required_int("num_labels", num_labels, name), threshold, average, *shared, **kwargs
        )


def __getattr__(name: str) -> Any:
    return resolve(__name__, name, with_private=True)
