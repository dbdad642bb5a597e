"""Why the first call after a pause is slow: the verdict of a sweep, on a simulated GPU."""

from __future__ import annotations

import dataclasses
import io
import json
import math

import pytest
from rich.console import Console

from simulated_gpu import BOOST, SimulatedGpu
from syncfree.benchmarking import gaps, idle_gap
from syncfree.benchmarking.backend import Work
from syncfree.benchmarking.cpu import CpuBackend
from syncfree.benchmarking.cuda import CudaBackend
from syncfree.benchmarking.gap_verdict import GapPoint, judge_gaps
from syncfree.benchmarking.gaps import IdleGap, sweep
from syncfree.timing.nvml import Reading

GAPS = (0.0, 0.01, 1.0)


@pytest.fixture
def gpu() -> SimulatedGpu:
    return SimulatedGpu()


def swept(gpu: SimulatedGpu, call, **options) -> IdleGap:
    backend = CudaBackend(gpu, gpu, gpu)
    return sweep(Work(call, l2="keep"), backend, gaps=GAPS, repeats=3, name="step", **options)


def point(gap: float, plain: float, **fields) -> GapPoint:
    values = {
        "plain_mad_us": 1.0,
        "host_us": 20.0,
        "gated_us": 90.0,
        "megahertz": BOOST,
        "device_allocations": 0.0,
        "n": 5,
    }
    return GapPoint(gap=gap, plain_us=plain, **{**values, **fields})


def test_a_gap_that_costs_nothing(gpu: SimulatedGpu) -> None:
    found = swept(gpu, lambda: gpu.kernel(200))
    assert found.verdict.cause == "none"
    assert [each.gap for each in found.points] == list(GAPS)
    assert all(each.plain_us == pytest.approx(200, rel=0.02) for each in found.points)
    assert all(each.gated_us == pytest.approx(200) for each in found.points)


def test_a_host_that_wakes_slowly(gpu: SimulatedGpu) -> None:
    """The measured case of an H200: 90 us of work, behind launches that the pause makes slow."""
    awake = [True]

    def call() -> None:
        per_launch = 18.0 if awake[0] else 53.0
        for _ in range(10):
            gpu.host(per_launch)
            gpu.kernel(9.0)

    rest = gpu.sleep

    def sleep(seconds: float) -> None:
        awake[0] = seconds < 0.005
        rest(seconds)

    gpu.sleep = sleep  # type: ignore[method-assign]
    found = swept(gpu, call)
    assert found.verdict.cause == "host launch"
    assert "Capture a graph or fuse" in found.verdict.text
    assert "Even back to back the host's launches hold the GPU up" in found.verdict.text
    assert all(each.gated_us == pytest.approx(90) for each in found.points)
    assert found.points[-1].host_us == pytest.approx(540)


def test_back_to_back_is_not_the_second_call_after_a_gap(gpu: SimulatedGpu) -> None:
    """The host needs some calls to get up to speed."""
    since = [0]
    rest = gpu.sleep

    def sleep(seconds: float) -> None:
        since[0] = 0 if seconds >= 0.005 else since[0]
        rest(seconds)

    def call() -> None:
        gpu.host(100.0 if since[0] > 8 else 400.0)
        gpu.kernel(50)
        since[0] += 1

    gpu.sleep = sleep  # type: ignore[method-assign]
    found = swept(gpu, call)
    assert found.points[0].host_us == pytest.approx(101)
    assert found.points[-1].host_us == pytest.approx(401)
    assert found.verdict.cause == "host launch"


def test_a_clock_that_ramps(gpu: SimulatedGpu) -> None:
    idle = [0.0]
    rest = gpu.sleep

    def sleep(seconds: float) -> None:
        idle[0] = seconds if seconds >= 0.005 else idle[0]
        rest(seconds)

    def call() -> None:
        mhz = 990.0 if idle[0] >= 1 else BOOST
        gpu.mhz = lambda: mhz
        gpu.kernel(300)
        idle[0] = 0.0

    gpu.sleep = sleep  # type: ignore[method-assign]
    found = swept(gpu, call)
    assert found.verdict.cause == "clock ramp"
    assert "990 MHz" in found.verdict.text
    assert found.points[-1].gated_us == pytest.approx(600)
    assert found.points[0].gated_us == pytest.approx(300)


def test_work_that_is_slower_at_the_same_clock(gpu: SimulatedGpu) -> None:
    idle = [0.0]
    rest = gpu.sleep

    def sleep(seconds: float) -> None:
        idle[0] = seconds if seconds >= 0.005 else idle[0]
        rest(seconds)

    def call() -> None:
        gpu.kernel(500 if idle[0] >= 1 else 300)
        idle[0] = 0.0

    gpu.sleep = sleep  # type: ignore[method-assign]
    assert swept(gpu, call).verdict.cause == "memory"


def test_a_call_that_waits_cannot_be_told_apart(gpu: SimulatedGpu) -> None:
    gpu.waiting_lines = "line train.py:7 (Tensor.item: loss.item())"
    gpu.waking = 500.0

    def call() -> None:
        gpu.kernel(50)
        gpu.wait()

    found = swept(gpu, call)
    assert found.not_gateable.startswith("waits at line train.py:7")
    assert found.verdict.cause == "waits"
    assert all(each.gated_us is None for each in found.points)


def test_on_the_cpu_a_single_call_is_compared_with_a_single_call(monkeypatch) -> None:
    """A reading of the clock, of which the mean of many short calls has next to nothing."""

    class Clock:
        seconds = 0.0

        def now(self) -> float:
            self.seconds += 0.25e-6
            return self.seconds

        def sleep(self, seconds: float) -> None:
            self.seconds += seconds

    clock = Clock()

    def call() -> None:
        clock.seconds += 0.5e-6

    monkeypatch.setattr(gaps, "backend_of", lambda place: CpuBackend(clock))
    found = idle_gap(call, gaps=GAPS, repeats=3, device="cpu")
    assert [each.plain_us for each in found.points] == [pytest.approx(0.75)] * len(GAPS)
    assert found.verdict.cause == "none"


def test_nvmls_clock_serves_for_short_calls(gpu: SimulatedGpu) -> None:
    found = swept(gpu, lambda: gpu.kernel(9), reading=lambda: Reading(1755.0))
    assert [each.megahertz for each in found.points] == [1755.0] * 3


@pytest.mark.parametrize(
    ("last", "cause"),
    [
        (point(1, 100), "none"),
        (point(1, 550, host_us=530), "host launch"),
        (point(1, 550, host_us=530, device_allocations=3), "allocator"),
        (point(1, 550, host_us=530, device_allocations=None), "host launch"),
        (point(1, 550, host_us=530, gated_us=120), "host launch"),  # and the GPU a little slower
        (point(1, 180, gated_us=170, megahertz=1000), "clock ramp"),
        (point(1, 180, gated_us=170), "memory"),
        (point(1, 180, gated_us=170, megahertz=None), "gpu"),
        # Half of what is lost is the main cause. In half of the calls, memory is none.
        (point(1, 195, gated_us=141), "memory"),
        (point(1, 195, gated_us=139, host_us=71), "host launch"),
        (point(1, 195, gated_us=139, host_us=69), "unexplained"),
        (point(1, 550, host_us=530, device_allocations=0.5), "host launch"),
        (point(1, 180, gated_us=None), "waits"),
        (point(1, 500), "unexplained"),
        (point(1, 500, plain_mad_us=420), "unexplained"),  # within the noise
    ],
)
def test_causes(last: GapPoint, cause: str) -> None:
    assert judge_gaps([point(0, 95), point(0.1, 96), last], kind="cuda").cause == cause


def test_the_slowest_gap_is_judged_not_the_longest() -> None:
    points = [point(0, 95), point(1, 550, host_us=530), point(5, 96)]
    verdict = judge_gaps(points, kind="cuda")
    assert verdict.cause == "host launch"
    assert verdict.text.startswith("after 1 s ")


def test_a_gap_whose_calls_vary_hides_no_other() -> None:
    noisy = point(0.1, 900, host_us=880, plain_mad_us=820)
    sure = point(1, 550, host_us=530)
    verdict = judge_gaps([point(0, 95), noisy, sure], kind="cuda")
    assert verdict.cause == "host launch"
    assert verdict.text.startswith("after 1 s a call takes 550 us instead of 95 us")


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_calls_that_vary_too_much_are_not_called_equal(kind) -> None:
    """As beside other work: 25 ms back to back and 79 ms after a pause were no difference."""
    points = [point(0, 25_000, plain_mad_us=24_000), point(0.1, 79_000, plain_mad_us=50_000)]
    verdict = judge_gaps(points, kind=kind)
    assert verdict.cause == "unexplained"
    assert "after 0.1 s a call takes 79 ms instead of 25 ms, but calls vary" in verdict.text
    assert "by 50 ms and 24 ms around these medians" in verdict.text


def test_calls_without_a_time_are_none_the_slower() -> None:
    points = [point(gap, 0, plain_mad_us=0, gated_us=0) for gap in (0, 1)]
    assert judge_gaps(points, kind="cuda").cause == "none"


def test_a_cpu_has_no_more_to_tell() -> None:
    assert judge_gaps([point(0, 95), point(1, 500)], kind="cpu").cause == "cpu"


def test_a_gate_that_never_held_is_the_reason() -> None:
    points = [point(0, 95, gated_us=None), point(1, 500, gated_us=None)]
    assert "before the gate opened" in judge_gaps(points, kind="cuda").text
    assert "not gateable: it waits" in judge_gaps(points, kind="cuda", not_gateable="it waits").text


def test_of_a_real_function_on_the_cpu(tmp_path) -> None:
    found = idle_gap(sum, [1.0] * 1000, gaps=[0.002, 0.001], repeats=3, device="cpu")
    assert found.name == "sum"
    assert [each.gap for each in found.points] == [0.0, 0.001, 0.002]
    assert all(each.gated_us is None and each.plain_us > 0 for each in found.points)
    document = json.loads(json.dumps(found.json()))
    assert document["verdict"]["cause"] in ("none", "cpu", "unexplained")
    assert len(document["points"]) == 3
    assert "back to back" in str(found)
    assert found.table().row_count == 3


@pytest.mark.parametrize("name", ["step[batch]", "a[/b]", "$x_{$"])
def test_any_name_is_shown_as_it_is(gpu: SimulatedGpu, name: str, tmp_path) -> None:
    """A C++ program may call its step what it likes."""
    found = dataclasses.replace(swept(gpu, lambda: gpu.kernel(200)), name=name)
    found.plot(tmp_path / "gaps.svg")
    assert f"<!-- {name}, " in (tmp_path / "gaps.svg").read_text()
    console = Console(file=io.StringIO(), width=120)
    console.print(found.table())
    assert console.file.getvalue().startswith(name)


def test_notes_stand_below_the_table_too(gpu: SimulatedGpu) -> None:
    found = swept(gpu, lambda: gpu.kernel(200), notes=("NVML is not installed",))
    assert "note: NVML is not installed" in str(found)
    assert "note: NVML is not installed" in str(found.table().caption)


@pytest.mark.parametrize("waits", [False, True])
def test_a_sweep_is_read_from_its_document(gpu: SimulatedGpu, waits: bool) -> None:
    gpu.waiting_lines = "line train.py:7 (Tensor.item: loss.item())"

    def call() -> None:
        gpu.kernel(200)
        if waits:
            gpu.wait()

    found = swept(gpu, call, notes=("NVML is not installed",))
    assert bool(found.not_gateable) == waits
    read = IdleGap.from_json(json.loads(json.dumps(found.json())))
    assert read == found
    assert str(read) == str(found)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "tpu"},
        {"kind": []},
        {"points": []},
        {"points": [{"gap": 0}]},
        {"points": 7},
        {"notes": None},
    ],
    ids=str,
)
def test_a_document_that_is_no_sweep(gpu: SimulatedGpu, change) -> None:
    document = {**swept(gpu, lambda: gpu.kernel(200)).json(), **change}
    for each in (document, [document], "sweep", None, {}):
        with pytest.raises(ValueError, match="this is no sweep over idle gaps: "):
            IdleGap.from_json(each)


@pytest.mark.parametrize("field", ["gap", "plain_us", "host_us", "gated_us", "n"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_document_with_what_is_no_number(gpu: SimulatedGpu, field: str, value: float) -> None:
    """JSON of Python may say NaN, of which the verdict would be any."""
    document = swept(gpu, lambda: gpu.kernel(200)).json()
    broken = {**document["points"][1], field: value}
    with pytest.raises(ValueError, match=f"{field} is {value}"):
        IdleGap.from_json({**document, "points": [document["points"][0], broken]})


def test_one_gap_and_one_call(tmp_path) -> None:
    found = idle_gap(abs, 1, gaps=[], repeats=1, device="cpu")
    assert [(each.gap, each.n) for each in found.points] == [(0.0, 1)]
    assert found.verdict.cause == "none"
    json.dumps(found.json(), allow_nan=False)
    found.plot(tmp_path / "gaps.png")
    assert (tmp_path / "gaps.png").stat().st_size > 0


def test_plot(gpu: SimulatedGpu, tmp_path) -> None:
    found = swept(gpu, lambda: gpu.kernel(200))
    found.plot(tmp_path / "gaps.svg")
    text = (tmp_path / "gaps.svg").read_text()
    assert text.count("</svg>") == 1
    found.plot(tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text() == text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gaps": [-1.0]}, "a gap is a number of seconds of at least 0, but got -1.0"),
        ({"gaps": [math.inf]}, "but got inf"),
        ({"gaps": [math.nan]}, "but got nan"),
        ({"repeats": 0}, "repeats is a count of at least 1, but got 0"),
    ],
)
def test_bad_arguments(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        idle_gap(int, device="cpu", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gaps": 0.01}, r"gaps are numbers of seconds, as in \[0.01, 1\], but got 0.01"),
        ({"gaps": "ab"}, "gaps are numbers of seconds, .* but got 'ab'"),
        ({"gaps": [0.01, "1"]}, "a gap is a number of seconds of at least 0, but got '1'"),
        ({"repeats": "3"}, "repeats is a count of at least 1, but got '3'"),
        ({"repeats": 1.5}, "repeats is a count of at least 1, but got 1.5"),
    ],
)
def test_arguments_of_wrong_types(options, message) -> None:
    with pytest.raises(TypeError, match=message):
        idle_gap(int, device="cpu", **options)


def test_gaps_may_come_from_an_iterator() -> None:
    found = idle_gap(int, gaps=iter([0.001]), repeats=1, device="cpu")  # type: ignore[arg-type]
    assert [each.gap for each in found.points] == [0.0, 0.001]


def test_no_function() -> None:
    async def later() -> None: ...

    with pytest.raises(TypeError, match=r"got the coroutine function .*later"):
        idle_gap(later, device="cpu")
    with pytest.raises(TypeError, match="fn is a function, but got 7"):
        idle_gap(7, device="cpu")  # type: ignore[arg-type]
