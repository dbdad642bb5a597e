"""Reduction of states over processes, against TorchMetrics' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torchmetrics import Metric
from torchmetrics.utilities.data import dim_zero_cat

from processes import in_processes
from syncfree import _distributed

STATES = {
    "counts": (torch.int64, (5,), "sum"),
    "more_counts": (torch.int64, (), "sum"),
    "errors": (torch.float32, (), "sum"),
    "bytes": (torch.uint8, (3,), "sum"),
    "flags": (torch.bool, (3,), "sum"),
    "range": (torch.float32, (), "mean"),
    "low": (torch.float32, (2, 3), "min"),
    "high": (torch.float32, (2, 3), "max"),
    "stacked": (torch.float32, (2,), None),
}
LISTS = {
    "values": (torch.float32, "cat"),
    "labels": (torch.int64, "cat"),
    "own": (torch.float64, None),
}


class Everything(Metric):
    """A state of every kind, with numbers that differ from process to process."""

    full_state_update = False

    def __init__(self, rank: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(rank)
        for name, (dtype, shape, reduction) in STATES.items():
            self.add_state(name, torch.zeros(shape, dtype=dtype), reduction)
            most = 2**8 if dtype == torch.uint8 else 2**40
            number = torch.rand(shape, generator=generator, dtype=torch.float64) * most
            setattr(self, name, number.to(dtype))
        for name, (dtype, reduction) in LISTS.items():
            self.add_state(name, [], reduction)
            for length in range(rank + 1):  # the first process has one empty piece
                piece = torch.rand(length, 3, generator=generator, dtype=torch.float64) * 100
                getattr(self, name).append(piece.to(dtype))

    def update(self) -> None: ...
    def compute(self) -> None: ...


def _same_as_torchmetrics(rank: int, world: int) -> None:
    theirs, ours = Everything(rank), Everything(rank)
    before = {
        name: state.clone() for name, state in ours.metric_state.items() if torch.is_tensor(state)
    }
    got = _distributed.reduce_states(ours.metric_state, ours._reductions, torch.device("cpu"))
    # TorchMetrics gathers such a list piece by piece and hangs where the processes' numbers differ.
    del theirs._reductions["own"]
    theirs.sync()
    for name in STATES:
        torch.testing.assert_close(got[name], getattr(theirs, name), rtol=1e-6, atol=0)
        assert torch.equal(getattr(ours, name), before[name])
    for name in ("values", "labels"):
        want = torch.cat([p for r in range(world) for p in getattr(Everything(r), name)])
        assert torch.equal(got[name], want)
    assert [len(x) for x in got["own"]] == [sum(range(r + 1)) for r in range(world)]


@pytest.mark.parametrize("world", [2, 4])
def test_same_as_torchmetrics(world: int, tmp_path: Path) -> None:
    in_processes(world, _same_as_torchmetrics, tmp_path)


def _one_process_without_data(rank: int, world: int) -> None:
    states: dict[str, Any] = {"x": [torch.arange(4).reshape(2, 2)] if rank == 1 else [], "y": []}
    reductions = {"x": dim_zero_cat, "y": dim_zero_cat}
    got = _distributed.reduce_states(states, reductions, torch.device("cpu"))
    assert torch.equal(got["x"], torch.arange(4).reshape(2, 2))
    assert got["y"] == []


def test_processes_without_data(tmp_path: Path) -> None:
    in_processes(2, _one_process_without_data, tmp_path)
