"""Checkpoints of accuracy with other options than the metric's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torchmetrics.classification as theirs

import syncfree.classification as ours

Options = dict[str, Any]
CASES: list[tuple[str, Options, Options]] = [
    ("MulticlassAccuracy", {"num_classes": 5}, {"num_classes": 7}),
    ("MulticlassAccuracy", {"num_classes": 5}, {"num_classes": 5, "average": "micro"}),
    ("MulticlassAccuracy", {"num_classes": 5, "average": "micro"}, {"num_classes": 5}),
    ("MultilabelAccuracy", {"num_labels": 3}, {"num_labels": 2}),
]


def saved(module: Any, name: str, options: Options) -> dict[str, Any]:
    metric = getattr(module, name)(**options)
    metric.persistent(True)
    generator = torch.Generator().manual_seed(0)
    size = options.get("num_classes") or options["num_labels"]
    preds = torch.rand(8, size, generator=generator)
    labels = preds.shape if "num_labels" in options else (8,)
    most = 2 if "num_labels" in options else size
    metric.update(preds, torch.randint(most, labels, generator=generator))
    return dict(metric.state_dict())


@pytest.mark.parametrize("module", [ours, theirs], ids=["ours", "theirs"])
@pytest.mark.parametrize(("name", "of_checkpoint", "of_metric"), CASES)
def test_counts_for_others_are_refused(
    module: Any, name: str, of_checkpoint: Options, of_metric: Options
) -> None:
    """They were taken, and `compute` gave the other metric's value."""
    metric = getattr(ours, name)(**of_metric)
    before = metric.tp.clone()
    with pytest.raises(
        RuntimeError, match=r"size mismatch for tp: .*number of classes and its `average`"
    ):
        metric.load_state_dict(saved(module, name, of_checkpoint))
    assert torch.equal(metric.tp, before)


@pytest.mark.parametrize("module", [ours, theirs], ids=["ours", "theirs"])
@pytest.mark.parametrize("options", [case[1] for case in CASES])
def test_counts_of_the_same_options_go_on(module: Any, options: Options) -> None:
    name = "MultilabelAccuracy" if "num_labels" in options else "MulticlassAccuracy"
    checkpoint = saved(module, name, options)
    metric = getattr(ours, name)(**options)
    metric.load_state_dict(checkpoint)
    assert torch.equal(metric.tp, checkpoint["tp"])
