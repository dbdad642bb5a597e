"""Metrics made on `meta`, as models are whose weights come from a checkpoint."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torchmetrics import Metric

from class_cases import CASES, ClassCase
from metric_contract import same_states, same_value


def on_meta(kind: type[Metric], made_there: bool, options: dict[str, Any]) -> Metric:
    if not made_there:
        return kind(**options).to("meta")
    with torch.device("meta"):
        return kind(**options)


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("made_there", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_checkpoint_makes_them_real(
    case: ClassCase, made_there: bool, assign: bool, device: str
) -> None:
    first, second, *_ = case.batches(device)
    _, saved = case.pair(device)
    saved.persistent(True)
    saved.update(*first)
    loaded = []
    for kind in (case.ours, case.theirs):
        metric = on_meta(kind, made_there, case.options)
        metric.persistent(True)
        metric.load_state_dict(saved.clone().state_dict(), assign=assign)
        same_states(metric, saved)
        metric.update(*second)
        loaded.append(metric)
    same_states(*loaded)
    same_value(*(metric.compute() for metric in loaded))
