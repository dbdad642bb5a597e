"""The line of the forward pass behind a wait in a backward pass, without a GPU."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import syncfree
from fake_cupti import MIB, FakeCupti, installed
from operator_cases import Listener, WaitInside, Waits, forward, operators
from syncfree.detector import FORWARD_NOT_KEPT


@pytest.fixture
def fake(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeCupti]:
    yield from installed(monkeypatch, tmp_path_factory)


def test_the_line_of_the_forward_pass(fake: FakeCupti) -> None:
    Waits.wait = fake.call("cuStreamSynchronize")
    x = torch.ones(3, requires_grad=True)
    with syncfree.detect_syncs() as report:
        y = Waits.apply(x)  # first
        for _ in range(2):
            y = torch.nn.functional.relu(Waits.apply(y))  # second
        y.sum().backward()
    assert {(forward(each), each.count) for each in report.findings} == {
        ("first", 1),
        ("second", 2),
    }
    assert {each.source for each in report.findings} == {"Waits.wait()"}
    assert operators(report) == [("WaitsBackward",)] * 2


def test_operators_of_torch_in_a_backward_pass(fake: FakeCupti) -> None:
    x = torch.ones(2, 3, requires_grad=True)
    layer = torch.nn.Linear(3, 3)
    with syncfree.detect_syncs() as report:
        y = layer(x).exp()  # layer
        with WaitInside(fake, "aten::mm"):
            y.sum().backward()
    (one,) = report.findings
    assert forward(one) == "layer"
    # Without the engine's entry, which would repeat the node's name.
    assert one.event.op_stack == ("aten::mm", "AddmmBackward0")


def test_the_forward_pass_of_another_thread(fake: FakeCupti) -> None:
    Waits.wait = fake.call("cuStreamSynchronize")
    made = []

    def forward_pass() -> None:
        made.append(Waits.apply(torch.ones(3, requires_grad=True)))  # elsewhere

    with syncfree.detect_syncs() as report:
        thread = threading.Thread(target=forward_pass)
        thread.start()
        thread.join()
        made[0].sum().backward()
    (one,) = report.findings
    assert forward(one) == "elsewhere"


def test_a_thread_without_python(fake: FakeCupti) -> None:
    """Autograd's threads for a device: the line of the forward pass is all that there is."""
    with syncfree.detect_syncs(threads="all") as report:
        listener = Listener()
        listener.begin(1, "aten::mul", 40)
        listener.end(1, 7, 41)  # made here
        fake.backward(listener.address, 40, 7, "cuStreamSynchronize")
        fake.backward(listener.address, 41, 7, "cuStreamSynchronize")
        fake.backward(listener.address, -1, 7, "cuEventSynchronize")  # accumulates a gradient
    first, second, third = sorted(report.findings, key=lambda each: each.event.forward is None)
    assert {each.event.op_stack for each in report.findings} == {("aten::mul", "MulBackward0")}
    kept, gone = sorted((first, second), key=lambda each: each.event.forward == FORWARD_NOT_KEPT)
    assert forward(kept) == "made here"
    assert gone.event.forward == FORWARD_NOT_KEPT
    assert third.event.forward is None
    assert "backward of a line that is no longer kept" in str(report)


def test_gradients_of_gradients_keep_the_line(fake: FakeCupti) -> None:
    """A node made by a node, where there is no Python, belongs to the line of the first."""
    with syncfree.detect_syncs(threads="all") as report:
        listener = Listener()
        listener.begin(1, "aten::mul", 5)
        listener.end(1, 7, 6)  # made here
        fake.node_in_node(listener.address, 5, 7, made=3, by=9)
        fake.backward(listener.address, 3, 9, "cuStreamSynchronize")
    (one,) = report.findings
    assert forward(one) == "made here"


def test_recomputed_lines_are_those_of_the_model(fake: FakeCupti) -> None:
    from torch.utils.checkpoint import checkpoint

    def block(x: torch.Tensor) -> torch.Tensor:
        return Waits.apply(x)  # in the block

    Waits.wait = fake.call("cuStreamSynchronize")
    for reentrant in (True, False):
        x = torch.ones(3, requires_grad=True)
        with syncfree.detect_syncs() as report:
            checkpoint(block, x, use_reentrant=reentrant).sum().backward()
        (one,) = report.findings
        assert forward(one) == "in the block"


def test_without_gradients_no_line_is_noted(fake: FakeCupti) -> None:
    x = torch.ones(3, requires_grad=True)
    Waits.wait = fake.call("cuStreamSynchronize")
    before = Waits.apply(x)
    with syncfree.detect_syncs() as report:
        with torch.no_grad():
            x * 2
        torch.ones(3) * 2
        before.sum().backward()
    (one,) = report.findings
    assert one.event.forward == FORWARD_NOT_KEPT


def test_a_million_nodes(fake: FakeCupti) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    kept = 1 << 16
    with syncfree.detect_syncs(threads="all") as report:
        listener = Listener()
        fake.operators(listener.address, 0, 100_000, 7)()  # early
        before = resident()
        fake.operators(listener.address, 100_000, 900_000, 7)()  # late
        assert resident() - before < 8 * MIB
        fake.backward(listener.address, 1_000_000 - kept - 1, 7, "cuStreamSynchronize")
        fake.backward(listener.address, 1_000_000 - kept, 7, "cuEventSynchronize")
    by_api = {each.event.api: each for each in report.findings}
    assert by_api["cuStreamSynchronize"].event.forward == FORWARD_NOT_KEPT
    assert forward(by_api["cuEventSynchronize"]) == "late"


def test_more_lines_than_there_is_room_for(fake: FakeCupti) -> None:
    source = "".join(f"def f{n}(call):\n    call()\n" for n in range(3000))
    scope: dict[str, Any] = {}
    exec(compile(source, "many_lines.py", "exec"), scope)
    with syncfree.detect_syncs(threads="all") as report:
        listener = Listener()
        for n in range(3000):
            scope[f"f{n}"](fake.operators(listener.address, n, 1, 7))
        fake.backward(listener.address, 10, 7, "cuStreamSynchronize")
        fake.backward(listener.address, 2999, 7, "cuEventSynchronize")
    by_api = {each.event.api: each.event.forward for each in report.findings}
    assert by_api["cuStreamSynchronize"] is not None
    assert by_api["cuStreamSynchronize"].file == "many_lines.py"
    assert by_api["cuStreamSynchronize"].line == 22
    assert by_api["cuEventSynchronize"] == FORWARD_NOT_KEPT


@pytest.mark.parametrize(
    "folder", ["/opt/torch", "/home/zoë/torch", "/home/悟空/torch", "/home/🐒/torch"]
)
def test_lines_of_torch_are_passed_over(fake: FakeCupti, folder: str) -> None:
    """Wherever it is installed."""
    scope: dict[str, Any] = {}
    exec(compile("def inner(call, *words):\n    call(*words)\n", f"{folder}/x.py", "exec"), scope)
    with syncfree.detect_syncs(threads="all") as report:
        listener = Listener(folder)
        listener.begin(1, "aten::mul", 40)
        scope["inner"](listener.end, 1, 7, 41)  # the program's
        fake.backward(listener.address, 40, 7, "cuStreamSynchronize")
    (one,) = report.findings
    assert forward(one) == "the program's"
