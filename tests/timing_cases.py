"""A timer for each device, and something to time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from syncfree import EventTimer


@pytest.fixture
def timer(device: str) -> EventTimer:
    return EventTimer(device)


def work(device: str) -> Tensor:
    return torch.ones(1000, device=device).cumsum(0)
