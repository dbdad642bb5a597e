"""States that `torch.inference_mode` made or replaced, and steps outside of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syncfree import classification as sf
from test_shared_states import batches, counted


def test_states_made_in_inference_mode(device: str) -> None:
    with torch.inference_mode():
        metric, other = (sf.MulticlassAccuracy(5).to(device) for _ in range(2))
        for batch in batches(2, device):
            metric.update(*batch)
            other.update(*batch)
    metric.merge_state(other)
    assert counted(metric) == 80
    metric.reset()
    metric.update(*batches(1, device)[0])
    assert counted(metric) == 20


def _merge(metric: sf.MulticlassAccuracy, other: sf.MulticlassAccuracy) -> None:
    metric.merge_state(other)


def _load(metric: sf.MulticlassAccuracy, other: sf.MulticlassAccuracy) -> None:
    metric.load_state_dict(other.state_dict())


def _reset(metric: sf.MulticlassAccuracy, other: sf.MulticlassAccuracy) -> None:
    metric.reset()
    metric.merge_state(other)


def _reset_compiled(metric: sf.MulticlassAccuracy, other: sf.MulticlassAccuracy) -> None:
    torch.compile(lambda: metric.reset(), backend="aot_eager")()
    metric.merge_state(other)


@pytest.mark.parametrize(
    ("change", "labels"), [(_merge, 60), (_load, 40), (_reset, 40), (_reset_compiled, 40)]
)
def test_states_replaced_in_inference_mode_serve_a_compiled_step(
    change: Any, labels: int, device: str
) -> None:
    torch._dynamo.reset()
    metric, other = (sf.MulticlassAccuracy(5).to(device) for _ in range(2))
    other.persistent(True)
    (batch,) = batches(1, device)
    step = torch.compile(lambda: metric.update(*batch), backend="aot_eager")
    step()
    kept = metric.metric_state  # as a compiled step may keep them
    other.update(*batch)
    with torch.inference_mode():
        change(metric, other)
    step()
    assert kept["tp"] is not metric.tp
    assert counted(metric) == labels


def test_a_first_batch_in_inference_mode_leaves_no_state_of_that_mode(device: str) -> None:
    with torch.device("meta"):
        metric = sf.MulticlassAccuracy(5, multidim_average="samplewise")
    scores, labels = torch.rand(4, 5, 3, device=device), torch.ones(4, 3, device=device).long()
    with torch.inference_mode():
        metric.update(scores, labels)
    assert not any(state.is_inference() for state in metric._hidden_states().values())
