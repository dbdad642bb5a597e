"""States that a function of the user has synced, in a single process."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torchmetrics.classification as tc
from torch import Tensor

from syncfree import classification, image


def twice(state: Tensor, group: Any = None) -> list[Tensor]:
    """As if there were another process with the same states."""
    return [state, state]


@pytest.mark.parametrize("validates", [False, True])
def test_bad_labels_are_brought_together_only_if_looked_for(validates: bool, device: str) -> None:
    seen: list[list[int]] = []
    values = []
    labels = torch.tensor([0, 1, 2, 2], device=device)
    for c in (classification, tc):
        sizes: list[int] = []

        def gather(state: Tensor, group: Any = None, sizes: list[int] = sizes) -> list[Tensor]:
            sizes.append(state.numel())
            return [state, state]

        metric = c.MulticlassAccuracy(
            num_classes=3,
            validate_args=validates,
            dist_sync_fn=gather,
            distributed_available_fn=lambda: True,
        ).to(device)
        metric.update(labels, labels.roll(1))
        values.append(metric.compute())
        seen.append(sizes)
    torch.testing.assert_close(*values)
    assert seen[0] == [*seen[1], *([1] if validates else [])]


@pytest.mark.parametrize("option", ["return_full_image", "return_contrast_sensitivity"])
@pytest.mark.parametrize("reduction", ["elementwise_mean", "none"])
def test_a_batch_for_synced_images_changes_nothing(
    option: str, reduction: Any, device: str
) -> None:
    images = torch.rand(2, 1, 16, 16, device=device)
    options: dict[str, Any] = {"data_range": 1.0, "reduction": reduction, option: True}
    metric = image.StructuralSimilarityIndexMeasure(**options).to(device)
    metric.update(images, images)
    metric.sync(dist_sync_fn=twice, distributed_available=lambda: True)
    before = {name: x.clone() for name, x in metric.metric_state.items() if torch.is_tensor(x)}
    assert before.keys() >= {"image_return"}
    lengths = {name: len(x) for name, x in metric.metric_state.items() if isinstance(x, list)}
    for leaf in (images, images.clone().requires_grad_()):
        with pytest.raises(TypeError, match=r"`image_return` to be a list.*call `unsync\(\)`"):
            metric.update(leaf, images)
    after = metric.metric_state
    torch.testing.assert_close({name: after[name] for name in before}, before, rtol=0, atol=0)
    assert {name: len(after[name]) for name in lengths} == lengths
    metric.unsync()
    metric.update(images, images)
    assert len(metric.image_return) == 2
