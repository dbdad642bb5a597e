"""`syncfree.benchmark` on a GPU: known spins, launches, waits, graphs, streams and memory."""

from __future__ import annotations

import importlib.util
import inspect
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
import torch

import syncfree
from syncfree import _runtime
from syncfree.benchmarking import idle_gap
from syncfree.benchmarking.cuda import SETUP_BETWEEN
from syncfree.benchmarking.peaks import arithmetic_rate, read_bandwidth
from syncfree.benchmarking.suites import accuracy
from syncfree.benchmarking.suites.runner import measure_workload, rows_of
from syncfree.benchmarking.torch_gpu import TorchGpu, waits_of
from syncfree.errors import BenchmarkError

pytestmark = [pytest.mark.needs_cuda, pytest.mark.alone]

MIB = 2**20


@pytest.fixture(autouse=True)
def _without_tier_3(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked where tier 2 sees no wait, and torch.profiler would see no GPU events later."""
    monkeypatch.setattr(TorchGpu, "waits_of", lambda self, call: waits_of(call, (2,)))


def spin(us: float) -> None:
    _runtime.spin(torch.cuda.current_stream().cuda_stream, us)


def busy_host(us: float) -> None:
    end = time.perf_counter() + us * 1e-6
    while time.perf_counter() < end:
        pass


def undisturbed(check: Callable[[], None]) -> None:
    """Other processes of a parallel run share the GPU: one of a few runs must be right."""
    for _ in range(4):
        try:
            return check()
        except AssertionError:
            time.sleep(1)
    return check()


@pytest.mark.parametrize("us", [200.0, 2000.0])
def test_a_spin_takes_as_long_as_it_should(us: float) -> None:
    def check() -> None:
        found = syncfree.benchmark(spin, us, max_seconds=3)
        assert found.kind == "cuda"
        assert found.gated, found.not_gateable
        launch_us = syncfree.benchmark(spin, 0.0, max_seconds=1).device_us
        assert found.device_us - launch_us == pytest.approx(us, rel=0.02)
        assert found.verdict.kind == "gpu-bound"

    undisturbed(check)


def test_the_clock_is_read() -> None:
    found = syncfree.benchmark(spin, 2000.0, max_seconds=5)
    assert found.megahertz is not None
    assert 100 < found.megahertz < 4000


def test_launch_bound() -> None:
    x = torch.zeros(16, device="cuda")

    def step() -> None:
        for _ in range(4):
            busy_host(150)
            x.add_(1)

    def check() -> None:
        found = syncfree.benchmark(step, max_seconds=3)
        assert found.gated, found.not_gateable
        assert found.plain_us > 3 * found.device_us
        assert found.verdict.kind == "launch-bound"
        assert "capture a graph" in found.verdict.text

    undisturbed(check)


def test_a_call_that_waits_names_its_line() -> None:
    x = torch.ones(16, device="cuda")

    def step() -> float:
        return x.sum().item()

    found = syncfree.benchmark(step, max_seconds=2)
    assert not found.gated
    line = inspect.getsourcelines(step)[1] + 1
    assert found.not_gateable.startswith("waits at line ")
    assert f"test_benchmark_cuda.py:{line} " in found.not_gateable
    assert found.verdict.kind == "waits"
    assert torch.cuda.get_sync_debug_mode() == 0


def test_without_a_gate_the_launches_count() -> None:
    def step() -> None:
        spin(20)
        busy_host(400)
        spin(20)

    def check() -> None:
        gated = syncfree.benchmark(step, max_seconds=2)
        plain = syncfree.benchmark(step, gate=False, max_seconds=2)
        assert gated.device_us < 200
        assert plain.device_us >= 400
        assert not plain.gated
        assert plain.plain_us is None

    undisturbed(check)


def test_contenders_in_one_run() -> None:
    def check() -> None:
        found = syncfree.benchmark(
            {"short": lambda: spin(100), "long": lambda: spin(300)}, max_seconds=3
        )
        assert found["long"].device_us / found["short"].device_us == pytest.approx(3, rel=0.05)
        assert found.fastest.name == "short"

    undisturbed(check)


def test_a_graph() -> None:
    x = torch.zeros(2**20, device="cuda")

    def step() -> None:
        for _ in range(20):
            x.add_(1)

    found = syncfree.benchmark(step, graph=True, max_seconds=3)
    assert found.graph
    assert found.gated, found.not_gateable
    before = x[0].item()
    assert before >= 20  # replays work on the same tensor


def test_what_cannot_be_captured() -> None:
    """In a process of its own: torch's allocator may not recover from a capture that failed."""
    code = (
        "import syncfree, torch\n"
        "x = torch.ones(8, device='cuda')\n"
        "try:\n"
        "    syncfree.benchmark(lambda: x.sum().item(), graph=True)\n"
        "except syncfree.errors.BenchmarkError as error:\n"
        "    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "the call cannot be captured into a CUDA graph" in done.stdout, done.stderr


def test_a_call_without_gpu_work_is_noted() -> None:
    def check() -> None:
        idle = syncfree.benchmark(lambda: None, max_seconds=1)
        busy = syncfree.benchmark(spin, 50.0, max_seconds=1)
        assert "no GPU work was seen" in idle.notes[-1]
        assert not any("no GPU work" in note for note in busy.notes)

    undisturbed(check)


def test_other_streams_are_part_of_the_time() -> None:
    side = torch.cuda.Stream()

    def step() -> None:
        with torch.cuda.stream(side):
            spin(500)

    def check() -> None:
        found = syncfree.benchmark(step, streams=[side], max_seconds=3)
        assert found.gated, found.not_gateable
        assert found.device_us == pytest.approx(500, rel=0.04)

    undisturbed(check)


def test_work_on_another_current_stream() -> None:
    def check() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            found = syncfree.benchmark(spin, 300.0, max_seconds=3)
        assert found.device_us == pytest.approx(300, rel=0.02)

    undisturbed(check)


def test_memory_of_a_call() -> None:
    found = syncfree.benchmark(
        lambda: torch.empty(64 * MIB, dtype=torch.uint8, device="cuda"), max_seconds=1
    )
    assert found.extra_bytes == 64 * MIB


def test_setup_is_not_timed() -> None:
    def setup() -> tuple[float]:
        spin(900)
        return (100.0,)

    def check() -> None:
        found = syncfree.benchmark(spin, setup=setup, max_seconds=3)
        assert found.device_us == pytest.approx(100, rel=0.05)
        assert found.loop_us is None
        assert found.no_loop == SETUP_BETWEEN
        assert 0 < found.loop_host_us < 1000  # without what the set-up costs the GPU

    undisturbed(check)


def test_shares_of_the_measured_peaks() -> None:
    here = torch.device("cuda", torch.cuda.current_device())
    x = torch.ones(2**26, device=here)
    read = syncfree.benchmark(torch.sum, x, bytes=x.nbytes, max_seconds=2)
    bytes_a_second = x.nbytes / (read.device_us * 1e-6)
    assert read.memory_share == pytest.approx(bytes_a_second / read_bandwidth(here))
    assert 1e9 < read_bandwidth(here) < 1e14
    n = 1024
    a = torch.randn(n, n, device=here, dtype=torch.bfloat16)
    product = syncfree.benchmark(
        torch.mm, a, a, flops=2 * n**3, flops_dtype=torch.bfloat16, max_seconds=2
    )
    rate = 2 * n**3 / (product.device_us * 1e-6)
    peak = arithmetic_rate(here, torch.bfloat16)
    assert product.compute_share == pytest.approx(rate / peak)
    assert 1e10 < peak < 1e16


@pytest.mark.parametrize("mode", ["burst", "idle_gap"])
def test_modes_that_pause(mode) -> None:
    def check() -> None:
        found = syncfree.benchmark(spin, 500.0, mode=mode, gap=0.01, max_seconds=2)
        assert found.mode == mode
        assert found.device_us == pytest.approx(500, rel=0.03)

    undisturbed(check)


def test_idle_gap() -> None:
    def check() -> None:
        found = idle_gap(spin, 300.0, gaps=[0.01, 0.1], repeats=3)
        assert found.not_gateable == ""
        assert [each.gap for each in found.points] == [0.0, 0.01, 0.1]
        for each in found.points:
            assert each.gated_us == pytest.approx(300, rel=0.05)
            assert each.plain_us >= 295
            assert each.megahertz is not None

    undisturbed(check)


def test_a_cpu_function_beside_a_gpu() -> None:
    found = syncfree.benchmark(time.sleep, 0.002, device="cpu", max_seconds=0.1)
    assert found.kind == "cpu"
    assert found.device_us >= 2000
    x = torch.rand(8)
    assert syncfree.benchmark(torch.sum, x, max_seconds=0.1).kind == "cpu"


def test_no_such_gpu() -> None:
    with pytest.raises(BenchmarkError, match="there is no cuda:99: torch sees"):
        syncfree.benchmark(int, device="cuda:99")


@pytest.mark.needs_two_gpus
def test_the_other_gpu() -> None:
    x = torch.ones(2**20, device="cuda:1")
    found = syncfree.benchmark(torch.sum, x, max_seconds=2)
    assert found.gated, found.not_gateable
    assert torch.cuda.current_device() == 0


@pytest.mark.skipif(importlib.util.find_spec("pynvml") is None, reason="extra `bench`")
def test_nvml_readings() -> None:
    found = syncfree.benchmark(spin, 500.0, max_seconds=2)
    assert found.watts > 0
    assert 0 < found.celsius < 120
    assert not any("NVML" in note for note in found.notes)


def test_a_workload_with_a_peer_that_waits() -> None:
    """TorchMetrics' macro accuracy stops the host; ours does not."""
    workload = accuracy.workload((256, 1000), torch.float32, "cuda", "macro")
    rows = {
        row["contender"]: row for row in rows_of(workload, measure_workload(workload, seconds=0.5))
    }
    assert rows["syncfree"]["gated"], rows["syncfree"]["not_gateable"]
    assert not rows["torchmetrics"]["gated"]
    assert rows["torchmetrics"]["not_gateable"].startswith("waits at line ")


def test_launches_are_counted() -> None:
    """In a process of its own: the profiler stays with the driver."""
    code = (
        "import torch\n"
        "from syncfree.benchmarking.launches import count_launches\n"
        "x = torch.zeros(16, device='cuda')\n"
        "print(count_launches(lambda: x.add_(1)), count_launches(lambda: x.add_(1).mul_(2)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["1.0", "2.0"], done.stderr
