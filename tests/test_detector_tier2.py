"""Tier 2: the parts that need no GPU, and on a GPU the whole of it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import warnings

import pytest
import torch

import syncfree
from syncfree.detector import Recorder
from syncfree.detector.patching import Patch
from syncfree.detector.stack import stack_here
from syncfree.detector.stderr_lines import MESSAGE, LineFilter, StderrWatch
from syncfree.detector.tier2 import Tier2, WarningHook
from syncfree.errors import DetectorError, SyncError

LINE = f"[W1121 23:31:56.7 CUDAFunctions.cpp:128] Warning: {MESSAGE} (function f)\n".encode()


# What C++ writes to descriptor 2


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_only_sync_warnings_are_taken_out(step: int) -> None:
    other = b"[W1121 a.cpp:1] Warning: something else\n"
    text = b"start\n" + LINE + b"10%\r20%\r" + LINE + other + b"[no warning]\n" + LINE + b"end ["
    lines = LineFilter()
    passed, found = b"", 0
    for begin in range(0, len(text), step):
        more, count = lines.feed(text[begin : begin + step])
        passed, found = passed + more, found + count
    assert lines.holds
    passed += lines.flush()
    assert passed == b"start\n10%\r20%\r" + other + b"[no warning]\nend ["
    assert found == 3


def test_what_is_no_warning_passes_at_once() -> None:
    lines = LineFilter()
    assert lines.feed(b"10% ") == (b"10% ", 0)
    assert lines.feed(b"a[") == (b"a", 0)
    assert lines.feed(b"b") == (b"[b", 0)
    assert not lines.holds


def test_descriptor_2_is_watched_and_given_back(capfd: pytest.CaptureFixture[str]) -> None:
    unplaced: list[int] = []
    before = os.fstat(2)
    threads = threading.active_count()
    with StderrWatch(unplaced.append) as watch:
        os.write(2, b"before\n")
        watch.expect()
        os.write(2, b"some\n" + LINE + LINE + b"text\n")
        assert watch.take() == 2
        watch.expect()
        for _ in range(3):
            os.write(2, LINE)
            time.sleep(0.05)  # so that each is read alone
        assert watch.take() == 3
        watch.expect()
        assert watch.take() == 0
        os.write(2, LINE + b"more\n" + b"[W half a line")
    assert sum(unplaced) == 1
    assert os.path.samestat(os.fstat(2), before)
    assert threading.active_count() == threads
    os.write(2, b"\nafter\n")
    assert capfd.readouterr().err == "before\nsome\ntext\nmore\n[W half a line\nafter\n"


def test_warnings_of_two_threads_at_once_belong_to_neither(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Descriptor 2 does not say who wrote."""
    unplaced: list[int] = []
    counts: dict[str, int] = {}
    with StderrWatch(unplaced.append) as watch:

        def other() -> None:
            watch.expect()
            os.write(2, LINE)
            begun.set()
            assert returned.wait(60)
            os.write(2, LINE * 3)  # nobody else is busy now
            counts["other"] = watch.take()

        begun, returned = threading.Event(), threading.Event()
        thread = threading.Thread(target=other)
        thread.start()
        assert begun.wait(60)
        watch.expect()
        os.write(2, LINE)
        counts["first to return"] = watch.take()
        returned.set()
        thread.join()
        watch.expect()
        watch.expect()  # an operator that calls another
        os.write(2, LINE)
        counts["inner"] = watch.take()
        os.write(2, LINE * 2)
        counts["outer"] = watch.take()
    assert counts == {"first to return": 0, "other": 3, "inner": 1, "outer": 2}
    assert sum(unplaced) == 2
    assert capfd.readouterr().err == ""


def test_more_than_a_pipe_holds(capfd: pytest.CaptureFixture[str]) -> None:
    with StderrWatch(lambda count: None):
        for _ in range(100):
            os.write(2, b"x" * 4096)
    assert len(capfd.readouterr().err) == 409_600


def test_unfinished_lines_do_not_wait_for_ever(capfd: pytest.CaptureFixture[str]) -> None:
    with StderrWatch(lambda count: None):
        os.write(2, b"[W is this a warning?")
        until = time.monotonic() + 10
        shown = ""
        while not shown and time.monotonic() < until:
            time.sleep(0.02)
            shown = capfd.readouterr().err
    assert shown == "[W is this a warning?"


def test_children_may_write_after_the_end() -> None:
    code = (
        "import subprocess, sys, time\n"
        "from syncfree.detector.stderr_lines import StderrWatch\n"
        "child = 'import sys, time; sys.stdin.read(); print(\"late\", file=sys.stderr)'\n"
        "with StderrWatch(print):\n"
        "    p = subprocess.Popen([sys.executable, '-c', child], stdin=subprocess.PIPE)\n"
        "p.stdin.close()\n"
        "sys.exit(p.wait())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "late\n")


def test_a_program_that_ends_inside() -> None:
    code = (
        "import sys\n"
        "from syncfree.detector.stderr_lines import StderrWatch\n"
        "StderrWatch(print).__enter__()\n"
        "sys.exit('the last words')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (1, "the last words\n")


# Python's warnings


def warn(text: str = MESSAGE) -> None:
    warnings.warn(f"{text} (function f)", UserWarning, stacklevel=1)


def state() -> tuple:
    names = ("showwarning", "simplefilter", "filterwarnings", "resetwarnings")
    patched = tuple(getattr(warnings, name) for name in names)
    return *patched, warnings.catch_warnings.__enter__, list(warnings.filters)


def test_each_warning_is_noticed_whatever_the_filters() -> None:
    seen: list[int] = []
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("ignore")
        before = state()
        with WarningHook(lambda: seen.append(1)):
            for _ in range(3):
                warn()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                warn()
            with warnings.catch_warnings(record=True) as inner:
                warn()
                warnings.simplefilter("always")
                warn()
                warn("another")
                warnings.resetwarnings()
                for _ in range(3):
                    warn()
                warnings.filterwarnings("error")
                warn()
            warn()
            warnings.warn("Synchronization debug mode is a prototype feature", stacklevel=1)
        assert state() == before
        warn()
    assert len(seen) == 11
    assert [str(each.message) for each in inner] == ["another (function f)"]
    assert shown == []


def test_other_warnings_reach_the_programs_own_hook() -> None:
    heard = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *rest: heard.append(str(message))
        with WarningHook(lambda: None):
            warn("one")
            with warnings.catch_warnings():
                warn("two")
            warn("three")
            warn()
        warn("four")
    assert heard == [f"{each} (function f)" for each in ("one", "two", "three", "four")]


def test_the_stack_of_a_warning() -> None:
    stacks = []
    with warnings.catch_warnings(), WarningHook(lambda: stacks.append(stack_here())):
        warn()
    names = [frame.function.rpartition(".")[2] for frame in stacks[0]]
    assert names[-2:] == ["warn", "test_the_stack_of_a_warning"]
    assert {frame.file for frame in stacks[0]} == {__file__}


# Patches


class Owner:
    def method(self, n: int) -> int:
        return n


def test_patches_leave_no_trace() -> None:
    original = Owner.method
    patch = Patch(Owner, "method", lambda original: lambda self, n: original(self, n) + 1)
    for _ in range(2):
        patch.install()
        assert Owner().method(1) == 2
        patch.remove()
        assert Owner.method is original


def test_a_patch_on_top_of_ours_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Owner.method
    patch = Patch(Owner, "method", lambda original: lambda self, n: original(self, n) + 1)
    patch.install()
    ours = Owner.method
    monkeypatch.setattr(Owner, "method", lambda self, n: 10 * ours(self, n))
    assert Owner().method(1) == 20
    patch.remove()
    assert Owner().method(1) == 10
    monkeypatch.undo()
    Owner.method = original


# The tier


def test_its_error_is_told_from_others() -> None:
    tier = Tier2(Recorder())
    try:
        raise RuntimeError(f"{MESSAGE} (function f)")
    except RuntimeError as error:
        event = tier.event_of_error(error)
    assert event is not None
    assert event.stack[0].file == __file__
    assert event.stack[0].function.endswith("test_its_error_is_told_from_others")
    assert tier.event_of_error(RuntimeError("another")) is None
    assert tier.event_of_error(ValueError(MESSAGE)) is None


def test_custom_operators_own_what_they_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an operator of a C++ extension does: its warning goes to the descriptor."""
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    modes = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    library = torch.library.Library("syncfree_test_tier2", "FRAGMENT")
    library.define("waits(Tensor x) -> Tensor")
    library.impl("waits", lambda x: (os.write(2, LINE), x.clone())[1], "CPU")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    call = torch._ops.OpOverload.__call__
    with syncfree.detect_syncs(tier=2) as report:
        for _ in range(2):
            torch.ops.syncfree_test_tier2.waits(torch.ones(2))  # the operator
        torch.ops.syncfree_test_tier2.waits.default(torch.ones(2))
        warn()
    assert torch._ops.OpOverload.__call__ is call
    assert modes == ["warn", 0]
    first, *others = report.findings
    assert (first.count, first.source.endswith("# the operator")) == (2, True)
    assert first.event.api == "syncfree_test_tier2.waits"
    assert sorted(each.event.api for each in others) == [
        "syncfree_test_tier2.waits.default",
        "torch sync debug mode",
    ]


def test_other_extensions_are_reported_with_what_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with syncfree.detect_syncs(tier=2) as report:
        os.write(2, LINE)
        until = time.monotonic() + 10
        while not report.findings and time.monotonic() < until:
            time.sleep(0.01)
    (found,) = report.findings
    assert found.file == __file__
    assert found.event.library == "a C++ extension"
    assert "was noticed, a moment later" in found.event.why


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
@pytest.mark.parametrize("tier", [2, 3])
def test_without_a_gpu_the_reason_is_named(tier: int) -> None:
    with pytest.raises(
        DetectorError, match=rf"tier {tier} .* needs an NVIDIA GPU.*use tier 0 or auto$"
    ):
        syncfree.detect_syncs(tier=tier).__enter__()


# On a GPU


@pytest.mark.needs_cuda
def test_waits_are_found() -> None:
    x = torch.ones(100, device="cuda")
    former = torch.cuda.get_sync_debug_mode()
    with syncfree.detect_syncs(tier=2) as report:
        x.sum().item()  # read
        y = x + 1
        x[x > 0]  # mask
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y.cpu()  # copy
    found = {each.source for each in report.findings}
    assert found == {"x.sum().item()  # read", "x[x > 0]  # mask", "y.cpu()  # copy"}
    assert torch.cuda.get_sync_debug_mode() == former


@pytest.mark.needs_cuda
def test_each_repetition_counts() -> None:
    x = torch.ones(1, device="cuda")
    with syncfree.detect_syncs(tier=2) as report:
        for _ in range(10):
            x.item()
    assert report.count == 10


@pytest.mark.needs_cuda
def test_it_raises_before_the_host_waits() -> None:
    x = torch.ones(1, device="cuda")
    torch.cuda.synchronize()
    torch.cuda._sleep(1_000_000_000)
    busy = torch.cuda.Event()
    busy.record()
    with pytest.raises(SyncError) as caught, syncfree.detect_syncs("raise", raise_at="call"):
        x.item()  # refused
    assert not busy.query()
    assert caught.value.report.findings[0].source == "x.item()  # refused"
    torch.cuda.synchronize()
    assert x.item() == 1


@pytest.mark.needs_cuda
def test_the_default_tier_says_what_it_is() -> None:
    # In a process of its own: after tier 3 torch.profiler sees no GPU events.
    code = (
        "import syncfree, torch\n"
        "with syncfree.detect_syncs() as report:\n"
        "    torch.ones(1, device='cuda').item()\n"
        "print(report.count >= 1 and (report.tier == 3 or 'tier 2' in report.note))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
