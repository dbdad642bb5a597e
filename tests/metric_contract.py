"""The metric classes beside TorchMetrics': which of them, and when both have come to the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torchmetrics import Metric

from class_cases import CASES

every_case = pytest.mark.parametrize("case", CASES, ids=str)
# Lists grow in Python: neither a compiled nor a captured step can do that again.
without_lists = pytest.mark.parametrize("case", [c for c in CASES if not c.has_lists], ids=str)


def check_that_no_call_waits(metric: Metric, batches: list[Any]) -> None:
    """By torch's sync debug mode; on CUDA."""
    for _ in range(2):  # the first round loads kernels
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for batch in batches:
                metric.update(*batch)
                metric(*batch)
            metric.compute()
            metric.reset()
        finally:
            torch.cuda.set_sync_debug_mode("default")


def same_value(got: Tensor, want: Tensor) -> None:
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-7, equal_nan=True)


def same_states(ours: Metric, theirs: Metric) -> None:
    assert ours.metric_state.keys() == theirs.metric_state.keys()
    for name, want in theirs.metric_state.items():
        got = getattr(ours, name)
        assert type(got) is type(want), name
        if isinstance(want, list):
            assert len(got) == len(want)
        torch.testing.assert_close(got, want, rtol=1e-6, atol=0)
