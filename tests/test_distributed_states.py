"""Reduction of states over processes, against TorchMetrics' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torchmetrics import Metric
from torchmetrics.utilities.data import dim_zero_cat

from processes import in_processes
from syncfree import MetricCollection, _state_reduction

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
    got = _state_reduction.reduce_states(ours.metric_state, ours._reductions, torch.device("cpu"))
    # TorchMetrics gathers such a list piece by piece and hangs where the processes' numbers differ.
    del theirs._reductions["own"]
    theirs.sync()
    for name in STATES:
        torch.testing.assert_close(got[name], getattr(theirs, name), rtol=1e-6, atol=0)
        assert torch.equal(getattr(ours, name), before[name])
    for name in ("values", "labels"):
        want = torch.cat([p for r in range(world) for p in getattr(Everything(r), name)])
        assert torch.equal(got[name], want)
    # The first of each, then the second of those that have one.
    lengths = [length for length in range(world) for _ in range(length, world)]
    assert [len(x) for x in got["own"]] == lengths


@pytest.mark.parametrize("world", [2, 4])
def test_same_as_torchmetrics(world: int, tmp_path: Path) -> None:
    in_processes(world, _same_as_torchmetrics, tmp_path)


class Single(Metric):
    """A state of any dtype and reduction that an update sets."""

    full_state_update = False

    def __init__(self, default: Any, reduction: Any, group: Any = None) -> None:
        super().__init__(process_group=group)
        self.add_state("x", default, reduction)

    def update(self, x: Any) -> None:
        self.x = x

    def compute(self) -> Any:
        return self.x


NAN = float("nan")
EXTREMES = torch.tensor([[1, NAN, 3, NAN], [NAN, 2, 1, NAN], [0, 0, 5, 1]])


def _awkward_numbers(rank: int, world: int) -> None:
    large = torch.arange(8) * 1000 + rank * 7.3 + 30000  # together more than float16 holds
    halves = (torch.float16, torch.bfloat16)
    extremes = ("max", "min")
    cases = [(EXTREMES[rank].to(d), r) for d in (torch.float32, *halves) for r in extremes]
    cases += [(large.to(d), r) for d in halves for r in ("sum", "mean", "max")]
    for x, reduction in cases:
        theirs = Single(torch.zeros_like(x), reduction)
        theirs.update(x)
        got = _state_reduction.reduce_states({"x": x}, theirs._reductions, torch.device("cpu"))["x"]
        want = theirs.compute()
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    for dtype in (torch.complex64, torch.complex128):
        states: dict[str, Any] = {"x": [torch.full((2,), rank + 1j, dtype=dtype)]}
        got = _state_reduction.reduce_states(states, {"x": dim_zero_cat}, torch.device("cpu"))["x"]
        assert got.tolist() == [r + 1j for r in range(world) for _ in range(2)]


def test_nan_half_precision_and_complex_numbers(tmp_path: Path) -> None:
    in_processes(3, _awkward_numbers, tmp_path)


def _one_process_outside(rank: int, world: int) -> None:
    group = torch.distributed.new_group([0, 1])
    for reduction, together in (("sum", 3.0), ("mean", 1.5), ("cat", [1.0, 1.0, 2.0, 2.0])):
        is_list = reduction == "cat"
        metric = Single([] if is_list else torch.zeros(()), reduction, group)
        own = torch.tensor([rank + 1.0] * 2 if is_list else rank + 1.0)
        metric.update([own] if is_list else own)
        value = MetricCollection({"x": metric}).compute()["x"]
        got = value[0] if isinstance(value, list) else value
        assert got.tolist() == (own.tolist() if rank == 2 else together)


def test_a_process_outside_the_group_keeps_its_own(tmp_path: Path) -> None:
    in_processes(3, _one_process_outside, tmp_path)


def _one_process_without_data(rank: int, world: int) -> None:
    states: dict[str, Any] = {"x": [torch.arange(4).reshape(2, 2)] if rank == 1 else [], "y": []}
    reductions = {"x": dim_zero_cat, "y": dim_zero_cat}
    got = _state_reduction.reduce_states(states, reductions, torch.device("cpu"))
    assert torch.equal(got["x"], torch.arange(4).reshape(2, 2))
    assert got["y"] == []


def test_processes_without_data(tmp_path: Path) -> None:
    in_processes(2, _one_process_without_data, tmp_path)
