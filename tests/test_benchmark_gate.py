"""How a GPU call is timed, on a simulated GPU whose truth is known."""

from __future__ import annotations

import pytest
import torch

from simulated_gpu import SimulatedGpu
from syncfree.benchmarking.api import measure
from syncfree.benchmarking.backend import Work
from syncfree.benchmarking.cuda import GATE_OPENED, LONGEST_GATE_US, SETUP_BETWEEN, CudaBackend
from syncfree.benchmarking.engine import Plan, run
from syncfree.benchmarking.result import Result, result_of


@pytest.fixture
def gpu() -> SimulatedGpu:
    return SimulatedGpu()


def probe_of(gpu: SimulatedGpu, call, **fields):
    return CudaBackend(gpu, gpu, gpu).probe(Work(call, **fields))


def measured(gpu: SimulatedGpu, call, plan: Plan | None = None, **fields) -> Result:
    plan = plan or Plan(max_seconds=1)
    seen = run({"f": probe_of(gpu, call, **fields)}, plan, gpu)["f"]
    return result_of(
        seen, name="f", kind="cuda", device="", mode=plan.mode, l2="flush", graph=False
    )


def many_launches(gpu: SimulatedGpu):
    """90 us of GPU work, which the host takes 520 us to launch."""

    def call() -> None:
        for _ in range(10):
            gpu.host(51.0)
            gpu.kernel(9.0)

    return call


def test_the_gate_hides_the_launch_time(gpu: SimulatedGpu) -> None:
    found = measured(gpu, many_launches(gpu))
    assert found.gated
    assert found.device_us == pytest.approx(90)
    assert found.host_us == pytest.approx(520)
    # Without it the GPU starves: the last kernel begins when it has been launched.
    assert found.plain_us == pytest.approx(520 + 9, rel=0.01)
    assert found.verdict.kind == "launch-bound"
    assert "520 us to enqueue 90 us of GPU work" in found.verdict.text
    assert found.megahertz == 1980


def test_long_work_is_not_launch_bound(gpu: SimulatedGpu) -> None:
    found = measured(gpu, lambda: gpu.kernel(700))
    assert found.device_us == pytest.approx(700)
    assert found.plain_us == pytest.approx(700, rel=0.01)
    assert found.verdict.kind == "gpu-bound"


def test_a_single_call_costs_the_host_more_than_one_of_many(gpu: SimulatedGpu) -> None:
    """Found on a GPU: 31 us behind a gate, 7.5 us back to back, for a call of 9 us."""
    last = [-1.0]

    def call() -> None:
        cold = gpu.now() - last[0] > 20e-6  # caches and clocks forget
        gpu.host(30.0 if cold else 6.0)
        gpu.kernel(9.0)
        last[0] = gpu.now()

    found = measured(gpu, call)
    assert found.device_us == pytest.approx(9)
    assert found.host_us == pytest.approx(31, abs=0.2)
    assert found.loop_host_us == found.steady_host_us
    assert 6 < found.loop_host_us < 8
    assert 9 <= found.loop_us < 11
    assert found.verdict.kind == "gpu-bound"  # in a loop, of which the verdict speaks
    assert "back to back, 31 us a single call" in str(found)


def test_a_loop_with_setup_has_the_hosts_time_of_the_calls_alone(gpu: SimulatedGpu) -> None:
    last = [-1.0]

    def setup() -> None:
        gpu.host(70.0)
        gpu.kernel(30.0)
        last[0] = gpu.now()

    def call() -> None:
        gpu.host(6.0 if gpu.now() - last[0] < 1e-9 else 30.0)
        gpu.kernel(9.0)

    found = measured(gpu, call, setup=setup)
    assert found.host_us == pytest.approx(31, abs=0.2)
    assert found.loop_host_us == pytest.approx(7)
    assert found.loop_us is None
    assert found.no_loop == SETUP_BETWEEN
    assert found.verdict.kind == "launch-bound"  # of single calls, for lack of both of a loop


@pytest.mark.parametrize("mode", ["burst", "idle_gap"])
def test_no_loop_where_the_mode_pauses(gpu: SimulatedGpu, mode) -> None:
    found = measured(gpu, lambda: gpu.kernel(9.0), Plan(mode, gap=0.01, max_seconds=1))
    assert found.loop_us is None
    assert found.loop_host_us is None
    assert found.no_loop == f"mode '{mode}' pauses between calls"
    assert found.steady_host_us == found.host_us


def test_a_call_that_waits_is_not_gateable(gpu: SimulatedGpu) -> None:
    gpu.waiting_lines = "line train.py:7 (Tensor.item: loss.item())"

    def call() -> None:
        gpu.kernel(100)
        gpu.wait()

    found = measured(gpu, call)
    assert not found.gated
    assert found.not_gateable == f"waits at {gpu.waiting_lines}"
    assert found.plain_us is None
    assert found.device_us == pytest.approx(101, rel=0.01)
    assert found.verdict.kind == "waits"
    assert "not gateable: waits at line train.py:7" in str(found)
    assert not found.discards


def test_a_wait_that_no_detector_sees_is_told_as_such(gpu: SimulatedGpu) -> None:
    probe = probe_of(gpu, gpu.wait)
    probe.prepare()
    why = probe.why_not_gateable()
    assert "more launches than the driver queues" in why
    assert not why.startswith("waits")


def test_a_host_that_is_too_slow_for_any_gate(gpu: SimulatedGpu) -> None:
    probe = probe_of(gpu, lambda: gpu.host(2 * LONGEST_GATE_US))
    probe.prepare()
    assert f"{LONGEST_GATE_US:.0f} us" in probe.why_not_gateable()


@pytest.mark.parametrize(
    ("seconds", "limit", "most"),
    # Two first calls, a look and a sample; or what the limit has room for, and what stands beside
    # the samples: ten without a gate, two loops of four, and one for the memory.
    [(0.5, 0.2, 4), (200.0, 10.0, 4), (1.0, 10.0, 1 + 15 + 10 + 8 + 1 + 2)],
)
@pytest.mark.parametrize("waits", [False, True])
def test_slow_calls_keep_to_the_limit(
    gpu: SimulatedGpu, seconds: float, limit: float, most: int, waits: bool
) -> None:
    calls = []

    def call() -> None:
        calls.append(1)
        gpu.kernel(seconds * 1e6)
        if waits:
            gpu.wait()

    found = measured(gpu, call, Plan(max_seconds=limit))
    assert len(calls) <= most
    assert found.device_us == pytest.approx(seconds * 1e6, rel=0.01)
    if most == 4:
        assert found.stopped == "time limit"
        assert "the time limit left none to try it" in found.not_gateable
        assert "too long for the time limit" in found.no_loop
        assert found.extra_bytes is None
        assert f"the warm-up ended at its limit of {limit / 2:g} s" in str(found)
    else:
        assert found.gated is not waits
        assert found.loop_us == pytest.approx(seconds * 1e6, rel=0.01)


def test_a_gate_that_opened_early_is_the_samples_problem(gpu: SimulatedGpu) -> None:
    host = [10.0]

    def call() -> None:
        gpu.host(host[0])
        gpu.kernel(80)

    probe = probe_of(gpu, call)
    probe.prepare()
    assert probe.why_not_gateable() == ""
    assert probe.sample(gated=True).problem == ""
    host[0] = 400.0  # an interruption
    late = probe.sample(gated=True)
    assert late.problem == GATE_OPENED
    assert late.us > 80
    assert probe.sample(gated=True).problem == GATE_OPENED
    again = probe.sample(gated=True)  # the gate has grown
    assert again.problem == ""
    assert again.us == pytest.approx(80)


def test_rare_interruptions_are_discarded_and_counted(gpu: SimulatedGpu) -> None:
    calls = [0]

    def call() -> None:
        calls[0] += 1
        gpu.host(20_000.0 if calls[0] % 37 == 0 else 5.0)
        gpu.kernel(80 + calls[0] % 3)

    found = measured(gpu, call, Plan(precision=0.005, max_seconds=0.2))
    assert found.device_us == pytest.approx(81)
    assert found.discards[GATE_OPENED] >= 1
    assert max(found.samples_us) < 90
    assert gpu.free < 2e6  # the gate did not grow for their sake


def test_order_of_what_is_enqueued(gpu: SimulatedGpu) -> None:
    probe = probe_of(gpu, lambda: gpu.log.append("call"), streams=("a", "b"))
    probe.prepare()
    gpu.log.clear()
    probe.sample(gated=True, pause=0.5)
    fork, join = ["fork a", "fork b"], ["join a", "join b"]
    assert gpu.log == ["flush", "pause 0.5", "spin", "stamp", *fork, "call", *join, "stamp"]
    gpu.log.clear()
    probe.sample(gated=False)
    assert gpu.log == ["flush", "stamp", *fork, "call", *join, "stamp"]
    gpu.log.clear()
    probe.sample(gated=False, pause=0.5)  # a stamp would be the first launch after the pause
    assert gpu.log == ["flush", "pause 0.5", *fork, "call", *join]


def test_the_cache_is_kept_on_request(gpu: SimulatedGpu) -> None:
    probe = probe_of(gpu, lambda: gpu.kernel(5), l2="keep")
    probe.prepare()
    probe.sample(gated=True)
    assert "flush" not in gpu.log


def test_the_flush_is_no_gate(gpu: SimulatedGpu) -> None:
    """A plain sample begins on an idle GPU, or the flush would hide launches."""
    probe = probe_of(gpu, lambda: (gpu.host(50), gpu.kernel(5)))
    probe.prepare()
    assert probe.sample(gated=False).us == pytest.approx(56)
    assert probe.sample(gated=True).us == pytest.approx(5)


def test_a_graph_is_replayed(gpu: SimulatedGpu) -> None:
    found = measured(gpu, lambda: gpu.kernel(200), graph=True)
    assert found.device_us == pytest.approx(200)
    assert found.host_us < 10


def test_a_graph_has_no_setup(gpu: SimulatedGpu) -> None:
    with pytest.raises(ValueError, match="setup cannot be combined"):
        probe_of(gpu, gpu.wait, graph=True, setup=lambda: None)


def test_setup_is_untimed_and_gives_the_arguments(gpu: SimulatedGpu) -> None:
    seen = []

    def setup() -> tuple[int]:
        gpu.kernel(5000)
        return (len(seen),)

    def call(index: int) -> None:
        seen.append(index)
        gpu.kernel(30)

    probe = probe_of(gpu, call, setup=setup)
    probe.prepare()
    sample = probe.sample(gated=True)
    assert sample.us == pytest.approx(30)
    assert seen == list(range(len(seen)))


def test_setup_returns_a_tuple(gpu: SimulatedGpu) -> None:
    with pytest.raises(TypeError, match="tuple of arguments of the next call, but got list"):
        probe_of(gpu, print, setup=lambda: [1]).prepare()


def test_no_clock_of_short_calls(gpu: SimulatedGpu) -> None:
    probe = probe_of(gpu, lambda: gpu.kernel(20))
    probe.prepare()
    assert probe.sample(gated=True).megahertz is None


def test_allocations_of_the_call_alone(gpu: SimulatedGpu) -> None:
    def call() -> None:
        gpu.allocations += 2

    probe = probe_of(gpu, call, setup=lambda: setattr(gpu, "allocations", gpu.allocations + 9))
    probe.prepare()
    assert probe.sample(gated=False).device_allocations == 2


@pytest.mark.parametrize(("work", "is_noted"), [(0.0, True), (3.0, False)])
def test_calls_without_gpu_work_are_noted(gpu: SimulatedGpu, work: float, is_noted: bool) -> None:
    works = {"f": Work(lambda: gpu.kernel(work) if work else None)}
    pair = gpu.EventPair

    def pair_with_a_cost():
        """Events themselves take a microsecond of the stream."""
        made = pair()
        start = made.start

        def start_later(handle: int) -> None:
            start(handle)
            gpu.free = made._start + 1.0

        made.start = start_later
        return made

    gpu.EventPair = pair_with_a_cost
    found = measure(works, Plan(max_seconds=0.5), CudaBackend(gpu, gpu, gpu), torch.device("cpu"))
    assert any("no GPU work was seen" in note for note in found["f"].notes) == is_noted


def test_errors_of_the_function_pass_through(gpu: SimulatedGpu) -> None:
    with pytest.raises(ZeroDivisionError):
        probe_of(gpu, lambda: 1 / 0).prepare()
