"""Operators around a wait, without a GPU, and the library that tells of them."""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

import syncfree
from fake_cupti import FakeCupti, installed
from operator_cases import Listener, WaitInside, Waits, forward, operators
from syncfree import _libraries, _runtime
from syncfree.detector import Report
from syncfree.detector import tiers as tiers_module
from syncfree.detector.operators import Listening, library_name, operators_here
from syncfree.detector.stderr_lines import MESSAGE


@pytest.fixture
def fake(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeCupti]:
    yield from installed(monkeypatch, tmp_path_factory)


def test_they_are_those_that_the_profiler_names(fake: FakeCupti) -> None:
    x, weight = torch.ones(2, 3), torch.ones(4, 3)
    with syncfree.detect_syncs() as report, WaitInside(fake, "aten::addmm"):
        torch.nn.functional.linear(x, weight, torch.ones(4))  # here
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        torch.nn.functional.linear(x, weight, torch.ones(4))
    event = next(each for each in profiler.events() if each.name == "aten::addmm")
    chain = []
    while event is not None:
        chain.append(event.name)
        event = event.cpu_parent
    assert chain == ["aten::addmm", "aten::linear"]
    assert operators(report) == [tuple(chain)]


def test_an_error_takes_them_off(fake: FakeCupti) -> None:
    wait = fake.call("cuStreamSynchronize")
    x = torch.ones(2, 3, requires_grad=True)

    class Breaks(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            raise ZeroDivisionError

    with syncfree.detect_syncs() as report:
        with pytest.raises(RuntimeError):
            x @ x
        with pytest.raises(ZeroDivisionError), Breaks():
            torch.nn.functional.linear(x, x)
        assert operators_here() == ((), None)
        wait()
    assert operators(report) == [()]


def test_each_thread_has_its_own(fake: FakeCupti) -> None:
    def work() -> None:
        x = torch.ones(2, 2)
        with WaitInside(fake, "aten::mul"):
            for _ in range(20):
                x * x

    def other() -> None:
        x = torch.ones(2, 2)
        with WaitInside(fake, "aten::mm"):
            for _ in range(20):
                torch.matmul(x, x)

    seen: Counter[tuple[str, ...]] = Counter()
    with syncfree.detect_syncs(allow=[lambda event: seen.update([event.op_stack])]):
        threads = [threading.Thread(target=each) for each in (work, other) * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seen == {("aten::mul",): 80, ("aten::mm", "aten::matmul"): 80}


def test_places_differ_by_operator(fake: FakeCupti) -> None:
    """The log must not take two operators of one line for the same place."""
    seen = []
    x = torch.ones(2, 2)
    with syncfree.detect_syncs(allow=[lambda event: seen.append(event.op_stack)]):
        for name in ("aten::mul", "aten::add", "aten::mul"):
            with WaitInside(fake, name):
                x * x + x
    assert seen == [("aten::mul",), ("aten::add",), ("aten::mul",)]


def test_nothing_stays_when_the_last_region_closes(fake: FakeCupti) -> None:
    class Look(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(operators_here()[0])
            return func(*args, **(kwargs or {}))

    seen: list[tuple[str, ...]] = []
    x = torch.ones(2)
    with Look():
        x + x
        with syncfree.detect_syncs():
            x + x
            with syncfree.detect_syncs():
                x + x
            x + x
        x + x
    assert seen == [(), ("aten::add",), ("aten::add",), ("aten::add",), ()]


def test_an_operator_that_outlives_the_region(fake: FakeCupti) -> None:
    def inside(x: torch.Tensor) -> torch.Tensor:
        region.__exit__(None, None, None)
        with syncfree.detect_syncs() as second:
            fake.call("cuStreamSynchronize")()
        reports.append(second)
        return x.clone()

    reports: list[Report] = []
    library = torch.library.Library("syncfree_test", "FRAGMENT")
    library.define("outlives(Tensor x) -> Tensor")
    library.impl("outlives", inside, "CPU")
    region = syncfree.detect_syncs()
    region.__enter__()
    torch.ops.syncfree_test.outlives(torch.ones(2))
    library._destroy()
    assert operators(reports[0]) == [()]


def test_operators_of_other_threads_while_regions_come_and_go() -> None:
    """Each operator that has begun ends, in whatever region: nothing is left on any stack."""
    stop = threading.Event()
    left: list[tuple[str, ...]] = []

    def work() -> None:
        x = torch.ones(4, 4, requires_grad=True)
        while not stop.is_set():
            torch.nn.functional.linear(x, x).sum().backward()
            left.append(operators_here()[0])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        with Listening():
            torch.ones(2) + 1
    stop.set()
    for thread in threads:
        thread.join()
    assert left
    assert set(left) == {()}


def test_sixty_operators_deep(fake: FakeCupti) -> None:
    """More than there is room for: the outermost are kept, and all come off again."""
    wait = fake.call("cuStreamSynchronize")
    with syncfree.detect_syncs() as report:
        listener = Listener()
        for depth in range(60):
            listener.begin(depth + 1, f"op{depth}")
        wait()
        for depth in reversed(range(60)):
            listener.end(depth + 1, 1, 0)
        assert operators_here() == ((), None)
    ((innermost, *rest),) = operators(report)
    assert innermost == "op47"
    assert len(rest) == 15


def test_names_are_cut_and_never_break_a_report(fake: FakeCupti) -> None:
    wait = fake.call("cuStreamSynchronize")
    with syncfree.detect_syncs() as report:
        listener = Listener()
        listener.begin(1, "x" * 95 + "é")
        wait()
        listener.end(1, 1, 0)
    ((name,),) = operators(report)
    assert name == "x" * 95 + "\ufffd"
    str(report).encode()


# Other tiers


@pytest.mark.skipif(torch.cuda.is_available(), reason="tier 0 stands in for a GPU")
def test_tier_0_knows_them_too() -> None:
    x = torch.rand(4, device="cpu", requires_grad=True)
    with syncfree.detect_syncs(tier=0) as report:
        y = x.to("cuda")  # copied
        masked = y[y > 0.5]  # masks
        torch.argwhere(y)
        masked.sum().item()
        masked.sum().backward()
    found = {each.source: each.event for each in report.findings if each.counts}
    assert found["masked = y[y > 0.5]  # masks"].op_stack == ("aten::index",)
    assert found["torch.argwhere(y)"].op_stack == ("aten::nonzero", "aten::argwhere")
    assert found["masked.sum().item()"].op_stack == ()  # seen before an operator is called
    in_backward = {
        each.event.op_stack: forward(each)
        for each in report.findings
        if each.source == "masked.sum().backward()"
    }
    assert in_backward == {("aten::index_put", "IndexBackward0"): "masks", (): "copied"}


def test_tier_2_knows_what_is_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers_module, "has_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: None)
    Waits.wait = lambda: warnings.warn(MESSAGE, stacklevel=2)
    x = torch.ones(3, requires_grad=True)
    with syncfree.detect_syncs(tier=2) as report:
        Waits.apply(x).sum().backward()  # both
    (one,) = report.findings
    assert (one.event.op_stack, forward(one)) == (("WaitsBackward",), "both")


# The library


def wait_in_an_operator(fake: FakeCupti) -> Report:
    x = torch.ones(2)
    with syncfree.detect_syncs() as report, WaitInside(fake, "aten::mul"):
        x * x
    return report


def test_the_library_of_another_torch_is_refused(
    fake: FakeCupti, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as other:
        other.setattr(torch, "__version__", "2.99.0+cu130")
        report = wait_in_an_operator(fake)
    built = _runtime.build_info()["torch"]
    said = f"this syncfree was built for torch {built}, but torch 2.99.0+cu130 is installed"
    assert said in report.note
    assert said in str(report)
    assert said in report.json()["note"]
    assert str(report).count("operators around waits and forward lines are not known") == 1
    assert (report.tier, report.count, operators(report)) == (3, 1, [()])
    report = wait_in_an_operator(fake)
    assert "not known" not in report.note
    assert operators(report) == [("aten::mul",)]


@pytest.mark.parametrize("kind", ["missing", "damaged"])
def test_a_library_that_is_not_there(
    fake: FakeCupti, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    damaged = tmp_path / "damaged.so"
    damaged.write_bytes(b"not a library")
    monkeypatch.setattr("syncfree.detector.operators._loaded", {})
    monkeypatch.setattr(_libraries, "find", lambda name: None if kind == "missing" else damaged)
    report = wait_in_an_operator(fake)
    assert (report.count, operators(report)) == (1, [()])
    said = "was left out of this build" if kind == "missing" else "damaged.so does not load"
    assert said in report.note


def test_this_build_has_it() -> None:
    with Listening() as listening:
        # Where Python's stacks are unknown, forward lines are.
        assert (listening.missing == "") == _runtime.can_walk_python_stack()
    assert _libraries.find(library_name(torch.__version__)) is not None


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("2.11.0", "2.11"),
        ("2.13.1+cpu", "2.13"),
        ("2.14.0.dev20260801+cu130", "2.14.0.dev20260801+cu130"),
        ("2.11.0a0+ebedce2", "2.11.0a0+ebedce2"),
    ],
)
def test_one_library_for_the_releases_of_a_minor_version(version: str, name: str) -> None:
    assert library_name(version) == f"syncfree_record-{name}"
