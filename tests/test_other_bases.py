"""Classes of users with another base before ours."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
import torchmetrics as tm
from torch import Tensor

import syncfree as sf
from class_cases import CASES, ClassCase

ACCURACY = next(case for case in CASES if issubclass(case.ours, sf.MulticlassAccuracy))


class Picking:
    """Takes the images or scores out of a batch, and keeps `__init_subclass__` to itself."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        pass

    def update(self, batch: dict[str, Tensor]) -> None:
        super().update(batch["preds"], batch["target"])  # type: ignore[misc]


class PickingOurs(Picking, sf.MulticlassAccuracy):
    pass


class PickingTheirs(Picking, tm.classification.MulticlassAccuracy):
    pass


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_base_before_ours(case: ClassCase, device: str) -> None:
    ours, theirs = (
        type("Picked", (Picking, base), {})(**case.options).to(device)
        for base in (case.ours, case.theirs)
    )
    for preds, target in case.batches(device):
        batch = {"preds": preds, "target": target}
        torch.testing.assert_close(ours(batch), theirs(batch), rtol=1e-6, atol=1e-7)
        ours.update(batch)
        theirs.update(batch)
    torch.testing.assert_close(ours.compute(), theirs.compute(), rtol=1e-6, atol=1e-7)


def test_a_base_before_ours_in_an_unpickled_metric() -> None:
    (preds, target), *_ = ACCURACY.batches("cpu")
    batch = {"preds": preds, "target": target}
    theirs = PickingTheirs(**ACCURACY.options)
    packed = pickle.dumps(PickingOurs(**ACCURACY.options))
    del PickingOurs._is_called_plainly  # as in a process that has made none of the class
    torch.testing.assert_close(pickle.loads(packed)(batch), theirs(batch))
