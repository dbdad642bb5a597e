"""The ops that count, driven as a metric would drive them, beside TorchMetrics' class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torchmetrics.classification as tm
from torch import Tensor

from accuracy_cases import mode
from syncfree._ops import accuracy as ops

STATES = ("tp", "fp", "tn", "fn")


@dataclass(frozen=True)
class Options:
    """Those of TorchMetrics' three classes."""

    task: str
    classes: int | None = None
    average: str | None = "micro"
    top_k: int = 1
    samplewise: bool = False
    ignore_index: int | None = None
    threshold: float = 0.5
    validate: bool = True

    def theirs(self, device: str) -> tm.StatScores:
        shared: dict[str, Any] = {
            "multidim_average": mode(self.samplewise),
            "ignore_index": self.ignore_index,
            "validate_args": False,
        }
        if self.task == "binary":
            metric = tm.BinaryAccuracy(self.threshold, **shared)
        elif self.task == "multiclass":
            metric = tm.MulticlassAccuracy(self.classes, self.top_k, self.average, **shared)
        else:
            metric = tm.MultilabelAccuracy(self.classes, self.threshold, self.average, **shared)
        return metric.to(device)

    def arguments(self, bits: int = 0) -> tuple[Any, ...]:
        """What the ops take behind the tensors."""
        average = "micro" if self.task == "binary" else self.average
        options, ignore_index = ops.pack_options(
            average, self.samplewise, self.ignore_index, self.validate
        )
        options = options | ops.task_bits(self.task, self.top_k) | bits
        own = {
            "binary": (self.threshold,),
            "multiclass": (self.classes or 0, self.top_k),
            "multilabel": (self.classes, self.threshold),
        }
        return *own[self.task], options, ignore_index

    @property
    def size(self) -> int:
        if self.task == "binary":
            return 1
        pooled = self.task == "multiclass" and self.average == "micro" and self.top_k == 1
        return 1 if pooled else self.classes or 1


class Counting:
    """States, and the ops on them."""

    def __init__(self, options: Options, device: str, states: list[Tensor] | None = None) -> None:
        self.options = options
        zeros = [torch.zeros(options.size, dtype=torch.int64, device=device) for _ in STATES]
        self.states = states or zeros
        self.bad = torch.zeros(1, dtype=torch.int64, device=device)
        self.lists: list[tuple[Tensor, ...]] = []

    def op(self, forms: dict[str, Any]) -> Any:
        return forms[self.options.task]

    def update(self, preds: Tensor, target: Tensor, bits: int = 0) -> None:
        arguments = self.options.arguments(bits)
        if self.options.samplewise:
            self.lists.append(self.op(ops.COUNTS)(preds, target, self.bad, *arguments))
        else:
            self.op(ops.UPDATE)(preds, target, *self.states, self.bad, *arguments)

    def forward(self, preds: Tensor, target: Tensor, bits: int = 0) -> Tensor:
        arguments = self.options.arguments(bits)
        value: Tensor = self.op(ops.FORWARD)(preds, target, *self.states, self.bad, *arguments)
        return value

    def function(self, preds: Tensor, target: Tensor) -> Tensor:
        value: Tensor = self.op(ops.ACCURACY)(preds, target, *self.options.arguments())
        return value

    def counts(self) -> list[Tensor]:
        if self.options.samplewise:
            return [torch.cat(parts) for parts in zip(*self.lists, strict=True)]
        return self.states

    def compute(self, bits: int = 0) -> Tensor:
        options = self.options.arguments(bits)[-2]
        value: Tensor = ops.accuracy_from_counts(*self.counts(), self.bad, options)
        return value


def equal_counts(ours: list[Tensor], theirs: tm.StatScores) -> None:
    """The same numbers in TorchMetrics' shapes."""
    for name, got, want in zip(STATES, ours, theirs._final_state(), strict=True):
        assert got.dtype == torch.int64
        assert torch.equal(got, want), name
