"""Tier 3 without a GPU: loading CUPTI, falling back, forks and exits."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import syncfree
from fake_cupti import WAITS, FakeCupti, installed
from syncfree.detector.tier3 import library as library_module
from syncfree.detector.tier3 import tier as tier_module
from syncfree.errors import DetectorError, SyncWarning

pytestmark = pytest.mark.filterwarnings("ignore::syncfree.errors.SyncWarning")


@pytest.fixture
def fake(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeCupti]:
    yield from installed(monkeypatch, tmp_path_factory)


def run(code: str, fake: FakeCupti, preload: str = "") -> subprocess.CompletedProcess[str]:
    prologue = f"""
        import os, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        import syncfree
        from fake_cupti import FakeCupti
        from syncfree.detector import tiers
        tiers.has_gpu = lambda: True
        fake = FakeCupti(Path({str(fake.path)!r}))
        wait = fake.call("cuStreamSynchronize")
    """
    text = textwrap.dedent(prologue) + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", text],
        env=os.environ | ({"LD_PRELOAD": preload} if preload else {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_a_fork_inside_of_a_region(fake: FakeCupti) -> None:
    done = run(
        """
        with syncfree.detect_syncs() as report:
            wait()
            child = os.fork()
            if child == 0:
                wait()
            else:
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
                wait()
        if child == 0:
            os._exit(0 if report.count <= 1 else 1)
        print(report.count, fake.library.fake_is_subscribed())
        """,
        fake,
    )
    assert (done.returncode, done.stdout) == (0, "2 0\n"), done.stderr


def test_an_exit_inside_of_a_region(fake: FakeCupti) -> None:
    done = run(
        """
        import atexit
        atexit.register(lambda: print("subscribed", fake.library.fake_is_subscribed()))
        syncfree.detect_syncs().__enter__()
        wait()
        sys.exit(7)
        """,
        fake,
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "subscribed 0\n", "")


def test_callbacks_neither_allocate_nor_call_the_driver(fake: FakeCupti, tmp_path: Path) -> None:
    """They run under locks of the driver and of torch's allocator."""
    counter = tmp_path / "libcount.so"
    source = Path(__file__).with_name("count_allocations.cpp")
    compiler = os.environ.get("CXX", "c++")
    subprocess.run(
        [compiler, "-std=c++17", "-O1", "-shared", "-fPIC", source, "-o", counter], check=True
    )
    done = run(
        """
        import ctypes
        preloaded = ctypes.CDLL(None)
        memory = fake.host_memory(4096)
        copy = fake.call("cuMemcpyDtoHAsync_v2", memory, 0x7000_0000, 8)
        pin = fake.call("cuMemHostRegister_v2", memory, 4096)
        unpin = fake.call("cuMemHostUnregister", memory)
        asks = fake.call("cuEventQuery", 7, result=600)
        answer = fake.call("cuEventQuery", 7)
        with syncfree.detect_syncs() as report:
            wait()  # the thread gets its log
            preloaded.counted_allocations()
            for _ in range(100):
                wait()
                copy(), wait()
                pin(), unpin()
                asks(), asks(), asks(), asks(), answer()
            counted = preloaded.counted_allocations()
            preloaded.count_allocations(True)
            list(range(1000))
            preloaded.count_allocations(False)
            assert preloaded.counted_allocations() > 0, "nothing counts"
        assert report.count >= 200, report
        print(counted, fake.library.fake_driver_calls_inside())
        """,
        fake,
        str(counter),
    )
    assert (done.returncode, done.stdout) == (0, "0 0\n"), done.stdout + done.stderr


# Loading and falling back


def test_subscribed_only_while_a_region_is_open(fake: FakeCupti) -> None:
    assert fake.library.fake_subscriptions() == 0
    with syncfree.detect_syncs(), syncfree.detect_syncs():
        assert fake.library.fake_is_subscribed()
        assert fake.is_enabled("cudaMemcpyAsync_v3020")
        for name in ("cuLaunchKernel", "cuEventRecord", "cuStreamWaitEvent", "cuMemcpyDtoD_v2"):
            assert not fake.is_enabled(name)
        assert not fake.is_enabled("cudaLaunchKernel_v7000")
    assert fake.library.fake_subscriptions() == 1


def without_gpu_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: None)


@pytest.mark.parametrize(
    ("v1", "v2", "text"),
    [
        (39, 39, "CUPTI for Nsight has it"),
        (39, 1, "another tool has it, such as torch.profiler"),
        (999, 999, r"CUPTI_ERROR_OTHER \(999\)"),
    ],
)
def test_the_reason_for_a_lower_tier(
    fake: FakeCupti, monkeypatch: pytest.MonkeyPatch, v1: int, v2: int, text: str
) -> None:
    without_gpu_calls(monkeypatch)
    fake.library.fake_refuse(v1, v2, b"CUPTI for Nsight")
    with pytest.raises(DetectorError, match=text):
        syncfree.detect_syncs(tier=3).__enter__()
    with pytest.warns(SyncWarning, match=text), syncfree.detect_syncs() as report:
        pass
    assert report.tier == 2
    assert "tier 2" in report.note


def test_a_python_whose_stacks_are_not_known(
    fake: FakeCupti, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_gpu_calls(monkeypatch)
    monkeypatch.setattr(syncfree._runtime, "can_walk_python_stack", lambda: False)
    with pytest.raises(DetectorError, match="this version of Python is not known well enough"):
        syncfree.detect_syncs(tier=3).__enter__()
    with pytest.warns(SyncWarning, match="this version of Python"), syncfree.detect_syncs() as it:
        pass
    assert it.tier == 2
    assert fake.library.fake_subscriptions() == 0


def test_the_old_subscription_where_the_new_one_fails(fake: FakeCupti) -> None:
    fake.library.fake_refuse(0, 11, b"")
    with syncfree.detect_syncs() as report:
        fake.call("cuStreamSynchronize")()
    assert (report.tier, report.count) == (3, 1)


def test_one_watch_for_a_library_of_two_names(
    fake: FakeCupti, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As when it is loaded by its path first, and found by its soname the next time."""
    watch = library_module.open_watch()
    other = tmp_path / "libcupti.so.13"
    other.symlink_to(fake.path)
    monkeypatch.setenv(library_module.OVERRIDE, str(other))
    assert library_module.open_watch() is watch


@pytest.mark.parametrize("path", ["/nonexistent/libcupti.so", "libm.so.6"])
def test_a_library_that_is_none(
    fake: FakeCupti, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv(library_module.OVERRIDE, path)
    with pytest.raises(DetectorError, match=r"does not load|has no function"):
        syncfree.detect_syncs(tier=3).__enter__()


def test_the_profiler_is_mentioned_once(fake: FakeCupti, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier_module, "_said", set())
    notes = []
    for tier in (3, "auto"):
        with syncfree.detect_syncs(tier=tier) as report:
            pass
        notes.append("torch.profiler" in str(report))
    assert notes == [True, False]


def real_cupti() -> ctypes.CDLL | None:
    """The CUPTI of NVIDIA's that tier 3 would use on this machine."""
    try:
        return library_module._cupti()[1]
    except DetectorError:
        return None


@pytest.mark.skipif(real_cupti() is None, reason="no libcupti on this machine")
def test_the_names_of_the_real_library() -> None:
    library = real_cupti()
    assert library is not None
    watch = syncfree._runtime.DriverWatch(library._handle, 0)
    names = watch.names()
    assert set(WAITS) - {"cuCtxSynchronize_v2"} <= set(names)
    assert {"cuMemcpyDtoHAsync_v2", "cuMemHostAlloc", "cuMemFree_v2", "cuEventQuery"} <= set(names)
    assert "cudaStreamSynchronize_v3020" in watch.names(runtime=True)
    if not torch.cuda.is_available():
        result, word, _ = watch.start()
        assert result != 0
        assert word.startswith("CUPTI_ERROR")
        assert not watch.is_active
