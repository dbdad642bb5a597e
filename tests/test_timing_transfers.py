"""Copies between host and GPU are told apart from computing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from syncfree import EventTimer
from syncfree.timing import transfers
from syncfree.timing.transfers import _MOVES


def test_transfers_are_told_apart(device: str, timer: EventTimer) -> None:
    host = torch.ones(1000)
    with timer.track_transfers(), timer.region("step"):
        there = host.to(device)
        there = (there * 2).to(torch.float64)
        there.sum().item()
        there.cpu()
        torch.tensor([1.0], device=device)
    timer.wait()
    found = sorted((s.name, s.kind, s.bytes, s.depth) for s in timer.samples())
    crossing = [
        ("Tensor.cpu", "d2h", 8000, 1),
        ("Tensor.item", "d2h", 8, 1),
        ("Tensor.to", "h2d", 4000, 1),
        ("torch.tensor", "h2d", 0, 1),
    ]
    step = ("step", "compute", None, 0)
    assert found == sorted([step, *crossing] if device == "cuda" else [step])


def test_which_calls_cross() -> None:
    """Looked at with tensors that only say they are on a GPU."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        there, here = torch.empty(3, 4, device="cuda"), torch.empty(3, 4)
    to, cuda = _MOVES[Tensor.to][1], _MOVES[Tensor.cuda][1]
    copies, makes = _MOVES[Tensor.copy_][1], _MOVES[torch.as_tensor][1]
    h2d, d2h = ("h2d", 48), ("d2h", 48)
    assert to((here, "cuda"), {}) == to((here, 0), {}) == to((here,), {"device": "cuda:1"}) == h2d
    assert to((here, there), {}) == to((here, torch.device("cuda"), torch.half), {}) == h2d
    assert to((there, "cpu"), {}) == to((there,), {"other": here}) == d2h
    assert to((there, torch.half), {}) is to((there, "cuda"), {}) is to((here,), {}) is None
    assert to((here, "meta"), {}) is None
    assert cuda((here,), {}) == h2d
    assert cuda((there,), {}) is None
    assert copies((there, here), {}) == h2d
    assert copies((here,), {"src": there}) == d2h
    assert copies((there, there), {}) is copies((here, 3.0), {}) is None
    assert makes((here,), {"device": "cuda"}) == h2d
    assert makes(([1, 2],), {"device": "cuda"}) == ("h2d", 0)
    assert makes(([1, 2],), {}) is makes(([1],), {"device": "cpu"}) is None
    for read in (Tensor.item, Tensor.tolist, Tensor.cpu, Tensor.__bool__, Tensor.__float__):
        assert _MOVES[read][1]((there,), {}) == d2h
        assert _MOVES[read][1]((here,), {}) is None


def test_a_default_device_is_a_target_too() -> None:
    makes = _MOVES[torch.tensor][1]
    with FakeTensorMode(allow_non_fake_inputs=True):
        there, here = torch.empty(3, 4, device="cuda"), torch.empty(3, 4)
    with torch.device("cuda"):
        assert makes(([1.0],), {}) == makes(([1.0],), {"device": None}) == ("h2d", 0)
        assert makes((here,), {}) == ("h2d", 48)
        assert makes(([1.0],), {"device": "cpu"}) is makes((there,), {}) is None
    with torch.device("cpu"):
        assert makes((there,), {}) == ("d2h", 48)
        assert makes(([1.0],), {}) is None
    assert makes((there,), {}) is makes((here,), {}) is makes(([1.0],), {}) is None


@pytest.fixture
def targets(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """The devices that data were found to be copied to."""
    seen: list[torch.device] = []
    monkeypatch.setattr(transfers, "direction", lambda source, target: seen.append(target))
    return seen


def test_the_mode_sees_a_default_device_around_it(targets: list[torch.device]) -> None:
    """The device is not among a call's arguments yet: torch adds it below the mode."""
    with torch.device("cpu"), torch.device("meta"), EventTimer("cpu").track_transfers():
        made = [torch.tensor([1.0]), torch.as_tensor([1.0])]
    assert targets == [each.device for each in made] == [torch.device("meta")] * 2


def test_the_mode_sees_a_default_device_that_is_set_below_it(targets: list[torch.device]) -> None:
    with EventTimer("cpu").track_transfers():
        torch.set_default_device("meta")
        try:
            made = torch.tensor([1.0])
        finally:
            torch.set_default_device(None)
        torch.tensor([1.0])
    assert targets == [made.device] == [torch.device("meta")]


def test_the_mode_sees_every_call_that_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "direction", lambda source, target: "d2h")  # whatever the ends
    timer, x = EventTimer("cpu"), torch.ones(1)
    with timer.track_transfers():
        x.to("cpu")
        x.cpu()
        x.copy_(torch.zeros(1))
        x.item()
        x.tolist()
        _ = bool(x), float(x), int(x)
        torch.tensor([1], device="cpu")
        torch.as_tensor([1], device="cpu")
    x.item()
    seen = [(each.name, each.bytes) for each in timer.samples()]
    names = {name for name, _ in _MOVES.values()} - {"Tensor.cuda"}
    assert sorted(name for name, _ in seen) == sorted(names)
    assert {size for name, size in seen if "(" in name or "Tensor." in name} == {4}
