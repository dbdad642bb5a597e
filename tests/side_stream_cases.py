"""What the tests of side streams share."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import syncfree
from class_cases import CASES
from syncfree._side_stream import SideStream
from syncfree.classification import MulticlassAccuracy, MulticlassF1Score

every_case = pytest.mark.parametrize("case", CASES, ids=str)


def side_of(metric: Any) -> SideStream:
    return metric.__dict__["_syncfree_side"]


def collection(**options: Any) -> Any:
    return syncfree.MetricCollection(
        {
            "accuracy": MulticlassAccuracy(num_classes=5),
            "f1": MulticlassF1Score(num_classes=5),
            "micro": MulticlassAccuracy(num_classes=5, average="micro"),
        },
        **options,
    )


def batches_of_scores(device: str) -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(3)
    return [
        (torch.randn(40, 5).to(device), torch.randint(0, 5, (40,)).to(device)) for _ in range(4)
    ]
