"""`syncfree.deferred`: values that come without a wait."""

from __future__ import annotations

import math
import operator
import time

import numpy as np
import pytest
import torch

import syncfree


def wait_for(shown) -> None:
    until = time.monotonic() + 30
    while not shown.ready():
        assert time.monotonic() < until
        time.sleep(0.001)


def test_a_number_and_its_text(device: str) -> None:
    shown = syncfree.deferred(torch.tensor(0.125, device=device))
    wait_for(shown)
    assert float(shown) == 0.125
    assert f"{shown:.2f}" == "0.12"
    assert f"{shown}" == str(shown) == "0.125"
    assert "0.125" in repr(shown)
    assert math.isclose(shown.latest().item(), 0.125)


def test_the_format_of_a_number_wants_one(device: str) -> None:
    one, three = syncfree.deferred(torch.tensor([0.5], device=device)), torch.zeros(3)
    wait_for(one)
    assert f"{one:.2f}" == "0.50"
    shown = syncfree.deferred(three.to(device))
    wait_for(shown)
    with pytest.raises(TypeError, match=r"one element for the format '\.2f', but got shape \[3\]"):
        f"{shown:.2f}"
    assert f"{shown}" == str(shown.latest())


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.uint8]
)
def test_any_dtype(dtype: torch.dtype, device: str) -> None:
    tensor = torch.tensor([[1, 0], [1, 1]], device=device).to(dtype)
    value = syncfree.deferred(tensor).value()
    assert value.dtype == dtype
    assert value.device.type == "cpu"
    assert torch.equal(value, tensor.cpu())


def test_any_layout(device: str) -> None:
    tensor = torch.arange(24.0, device=device).reshape(2, 3, 4)
    for view in (tensor.transpose(0, 2), tensor[:, ::2], tensor[:0], tensor.expand(5, 2, 3, 4)):
        assert torch.equal(syncfree.deferred(view).value(), view.cpu())


def test_following_a_value(device: str) -> None:
    shown = syncfree.deferred(torch.tensor(0.0, device=device))
    for step in range(1, 200):
        shown.update(torch.tensor(float(step), device=device))
        assert float(shown) <= step or math.isnan(float(shown))
    assert shown.value().item() == 199
    assert shown.ready()
    shown.update(torch.ones(3, device=device))
    assert torch.equal(shown.value(), torch.ones(3))


def test_what_was_given_out_stays(device: str) -> None:
    tensor = torch.ones(3, device=device)
    shown = syncfree.deferred(tensor)
    first = shown.value()
    tensor.zero_()
    assert torch.equal(shown.value(), torch.ones(3))
    shown.update(tensor)
    shown.update(tensor)
    assert torch.equal(shown.value(), torch.zeros(3))
    assert torch.equal(first, torch.ones(3))


def test_gradients_are_left_behind(device: str) -> None:
    loss = (torch.ones(2, device=device, requires_grad=True) * 2).sum()
    value = syncfree.deferred(loss).value()
    assert not value.requires_grad
    assert value.item() == 4


def test_truth_is_that_of_the_value(device: str) -> None:
    shown = syncfree.deferred(torch.tensor(False, device=device))
    wait_for(shown)
    assert not shown
    for tensor, true in ((torch.tensor(2), True), (torch.zeros(1), False), (torch.ones(1), True)):
        shown.update(tensor.to(device))
        wait_for(shown)
        assert bool(shown) is true
    shown.update(torch.ones(2, device=device))
    wait_for(shown)
    with pytest.raises(ValueError, match=r"shape \(2,\). Defer `tensor.any\(\)`"):
        bool(shown)


def test_what_asks_for_a_number_is_told_how() -> None:
    shown = syncfree.deferred(torch.tensor(3))
    with pytest.raises(TypeError, match=r"`int\(shown.value\(\)\)`, which waits"):
        int(shown)
    for compare in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
        for other in (3, 3.0, np.float32(3), torch.tensor(3)):
            with pytest.raises(TypeError, match=r"Compare `float\(shown\)`"):
                compare(shown, other)
    assert shown != syncfree.deferred(torch.tensor(3))
    assert shown in [shown]
    assert shown in {shown}
    assert shown is not None
    assert shown not in (None, "3")


def test_wrong_types() -> None:
    with pytest.raises(TypeError, match="takes a tensor, but got float"):
        syncfree.deferred(0.5)
    with pytest.raises(ValueError, match="element"):
        float(syncfree.deferred(torch.ones(2)))


@pytest.mark.needs_cuda
def test_nothing_waits() -> None:
    x = torch.ones(1000, device="cuda")
    shown = syncfree.deferred(x.sum())
    shown.value()
    torch.cuda._sleep(1_000_000_000)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(20):
            shown.update(x[::2].sum())
            text = f"{shown:.1f}", float(shown), shown.latest(), shown.ready()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert text == ("1000.0", 1000.0, torch.tensor(1000.0), False)
    assert shown.value().item() == 500


@pytest.mark.needs_cuda
def test_before_the_first_value() -> None:
    syncfree.deferred(torch.ones((), device="cuda")).value()  # what is first loaded waits
    torch.cuda._sleep(1_000_000_000)
    shown = syncfree.deferred(torch.ones((), device="cuda"))
    assert (f"{shown:.1f}", str(shown), shown.latest()) == ("nan", "not there yet", None)
    assert math.isnan(float(shown))
    assert not shown
    assert shown.value().item() == 1
    assert shown


@pytest.mark.needs_cuda
def test_the_current_stream() -> None:
    x = torch.zeros(1 << 20, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        x.fill_(7)
        shown = syncfree.deferred(x)
    assert torch.equal(shown.value(), torch.full((1 << 20,), 7.0))


@pytest.mark.needs_cuda
def test_buffers_are_used_again() -> None:
    x = torch.ones(10, device="cuda")
    shown = syncfree.deferred(x)
    places = set()
    for _ in range(50):
        shown.update(x)
        torch.cuda.synchronize()
        assert shown.ready()
        places.add(shown._arrived.host.data_ptr())
    assert len(places) <= 2


@pytest.mark.needs_cuda
def test_not_under_capture() -> None:
    x = torch.ones(1, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), pytest.raises(RuntimeError, match="graph is captured"):
        syncfree.deferred(x)
