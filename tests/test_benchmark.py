"""`syncfree.benchmark` on the CPU: what it returns, shows, writes, and refuses."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import subprocess
import sys
import time

import pytest
import torch

import detector_stub
import syncfree
from syncfree.benchmarking import Comparison, Result
from syncfree.benchmarking.api import measure
from syncfree.benchmarking.backend import Work
from syncfree.benchmarking.cpu import MOST_CALLS, CpuBackend
from syncfree.benchmarking.devices import device_of
from syncfree.benchmarking.engine import Plan
from syncfree.benchmarking.torch_gpu import waits_of
from syncfree.detector import tiers
from syncfree.errors import BenchmarkError

quick = functools.partial(syncfree.benchmark, device="cpu", max_seconds=0.1)


@pytest.fixture(scope="module")
def result() -> Result:
    return quick(sum, [1.0] * 1000, max_seconds=2)


def test_a_function_of_known_duration() -> None:
    """No assertion on speed: a sleep is never shorter than asked for."""
    found = quick(time.sleep, 0.002)
    assert found.kind == "cpu"
    assert found.name == "sleep"
    assert min(found.samples_us) >= 2000
    assert found.device_us == found.host_us >= 2000
    assert found.n == len(found.samples_us)


def test_figures_agree_with_the_samples(result: Result) -> None:
    ordered = sorted(result.samples_us)
    assert ordered[0] <= result.device_us <= ordered[-1]
    assert result.device_us == pytest.approx(torch.tensor(ordered).double().quantile(0.5).item())
    low, high = result.interval_us
    assert low <= result.device_us <= high
    assert result.half_width == pytest.approx(
        max(high - result.device_us, result.device_us - low) / result.device_us
    )
    assert (result.stopped == "precision") == (result.half_width <= 0.01)


def test_short_functions_are_called_often_a_sample() -> None:
    class Clock:
        def __init__(self) -> None:
            self.time = 0.0

        def now(self) -> float:
            return self.time

        def sleep(self, seconds: float) -> None:
            self.time += seconds

    clock = Clock()
    calls = []

    def short() -> None:
        calls.append(1)
        clock.time += 0.5e-6

    probe = CpuBackend(clock).probe(Work(short))
    probe.prepare()
    calls.clear()
    assert probe.sample(gated=False).us == pytest.approx(0.5)
    assert len(calls) == 100
    calls.clear()
    assert probe.sample(gated=False, pause=1.0).us == pytest.approx(0.5)
    assert len(calls) == 1

    def instant() -> None:
        calls.append(1)

    probe = CpuBackend(clock).probe(Work(instant))
    probe.prepare()
    assert probe.calls == MOST_CALLS


def test_a_single_sample_is_shown_drawn_and_written(tmp_path) -> None:
    calls = {"one": lambda: time.sleep(0.03), "other": lambda: time.sleep(0.03)}
    found = quick(calls, max_seconds=0.02)
    assert [each.n for each in found.values()] == [1, 1]
    assert "n = 1, too few for an interval" in str(found)
    json.dumps(found.json(), allow_nan=False)
    found.plot(tmp_path / "samples.png")
    assert (tmp_path / "samples.png").stat().st_size > 0
    assert found.table().row_count == 2


@pytest.mark.parametrize("name", ["_step", "$x_{$", "cut[step]"])
def test_names_are_shown_as_they_are(name: str, tmp_path) -> None:
    quick({name: int, "other": int}).plot(tmp_path / "samples.svg")
    # Text is drawn as one shape a letter, which a comment names.
    assert f"<!-- {name} -->" in (tmp_path / "samples.svg").read_text()


@pytest.mark.parametrize("options", [{"setup": lambda: None}, {"mode": "idle_gap", "gap": 1e-6}])
def test_what_the_clock_takes_of_a_short_single_call_is_told(options) -> None:
    def told(call, *args, **chosen) -> bool:
        return any("readings of the clock" in note for note in quick(call, *args, **chosen).notes)

    assert told(abs, 1, **options)
    assert not told(time.sleep, 0.002, **options)
    assert not told(abs, 1)  # the mean of many


def test_setup_is_called_before_each_call() -> None:
    calls = []

    def setup() -> tuple[int]:
        calls.append("setup")
        return (len(calls),)

    quick(lambda n: calls.append("call"), setup=setup)
    assert calls[::2] == ["setup"] * (len(calls) // 2)
    assert calls[1::2] == ["call"] * (len(calls) // 2)


def test_arguments_are_given_once() -> None:
    with pytest.raises(ValueError, match=r"setup returned .* leave those out"):
        quick(abs, -1, setup=lambda: (-2,))
    assert quick(abs, -1, setup=lambda: None).samples_us


def test_contenders() -> None:
    found = quick({"short": lambda: sum(range(10)), "long": lambda: sum(range(20_000))})
    assert isinstance(found, Comparison)
    assert list(found) == ["short", "long"]
    assert len(found) == 2
    assert found["short"].name == "short"
    assert found.fastest is found["short"]
    assert found["short"].n == found["long"].n
    with pytest.raises(KeyError, match="no contender 'other'; there are: 'short', 'long'"):
        found["other"]


def test_shares_of_measured_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    from syncfree.benchmarking import api

    asked = []
    monkeypatch.setattr(api, "read_bandwidth", lambda device: 1e9)
    monkeypatch.setattr(
        api, "arithmetic_rate", lambda device, dtype: asked.append((device.type, dtype)) or 2e9
    )
    found = quick(time.sleep, 0.002, bytes=1e6, flops=1e6, flops_dtype=torch.float64)
    assert found.memory_share == pytest.approx(1000 / found.device_us)
    assert found.compute_share == pytest.approx(500 / found.device_us)
    assert asked == [("cpu", torch.float64)]
    assert "of the read bandwidth measured here" in found.verdict.text


def test_peaks_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    from syncfree.benchmarking import peaks

    monkeypatch.setitem(peaks.READ_BYTES, "cpu", 2**20)
    monkeypatch.setitem(peaks.MATRIX, "cpu", 64)
    monkeypatch.setattr(peaks, "PLAN", dataclasses.replace(peaks.PLAN, max_seconds=0.05))
    cpu = torch.device("cpu")
    # The caches are for the whole process: these figures must not enter them.
    assert peaks.read_bandwidth.__wrapped__(cpu) > 0
    assert peaks.arithmetic_rate.__wrapped__(cpu, torch.float32) > 0


def test_json(result: Result) -> None:
    document = json.loads(json.dumps(result.json()))
    assert document["device_us"] == result.device_us
    assert document["n"] == len(document["samples_us"])
    assert document["min_us"] <= document["p10_us"] <= document["device_us"] <= document["p90_us"]
    assert document["verdict"]["kind"] == "cpu"
    assert document["extra_bytes"] is None


def test_text_of_the_cpu(result: Result) -> None:
    assert "CPU clock, mode steady" in str(result)
    assert "gate" not in str(result)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "fast"}, "mode is one of 'steady', 'burst', 'idle_gap', but got 'fast'"),
        ({"l2": "cold"}, "l2 is 'flush' or 'keep', but got 'cold'"),
        ({"gap": 1.0}, "'steady' has none"),
        ({"gap": 0.0, "mode": "burst"}, "gap is a number of seconds above 0, but got 0.0"),
        ({"precision": 0.0}, "precision is a share above 0 and below 1, but got 0.0"),
        ({"precision": 5}, "but got 5"),
        ({"max_seconds": 0}, "max_seconds is a number of seconds above 0, but got 0"),
        ({"max_seconds": float("nan")}, "but got nan"),
        ({"bytes": 0}, "bytes is a number above 0, but got 0"),
        ({"bytes": float("inf")}, "bytes is a number above 0, but got inf"),
        ({"flops": float("inf")}, "flops is a number above 0, but got inf"),
        ({"gap": float("inf"), "mode": "burst"}, "seconds above 0, but got inf"),
        ({"flops": -1.0}, "flops is a number above 0, but got -1.0"),
        ({"graph": True}, "graph=True captures a CUDA graph, but this function runs on the CPU"),
        ({"streams": ["s"]}, "streams are CUDA streams, but this function runs on the CPU"),
        ({"device": "meta"}, "device is the CPU or a CUDA device, but got meta"),
    ],
)
def test_bad_arguments(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        quick(int, **options)


@pytest.mark.parametrize("what", ["bytes", "flops", "precision", "max_seconds", "gap"])
def test_numbers_that_are_none(what: str) -> None:
    options = {"mode": "burst"} if what == "gap" else {}
    with pytest.raises(TypeError, match=f"{what} is a (number|share).* but got '1'"):
        quick(int, **options, **{what: "1"})


async def _later() -> None: ...


def _pieces():
    yield 1


async def _later_pieces():
    yield 1


class _Later:
    async def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (_later, r"the coroutine function _later, .* pass `lambda: asyncio.run\(f\(\)\)`"),
        (functools.partial(_later), "the coroutine function"),
        (_Later(), "the coroutine function"),
        (_pieces, r"the generator function _pieces, .* pass `lambda: list\(f\(\)\)`"),
        (_later_pieces, "the asynchronous generator function _later_pieces"),
        ({"whole": int, "pieces": _pieces}, "the generator function _pieces"),
    ],
)
def test_calls_that_only_begin_are_refused(fn, message) -> None:
    with pytest.raises(TypeError, match=message):
        quick(fn)


class _SlowClock:
    """Time passes only where a function under test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls = 0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def call(self, seconds: float) -> None:
        self.calls += 1
        self.seconds += seconds


@pytest.mark.parametrize(
    ("seconds", "limit", "most"),
    # The first call, one that is looked at, one that counts; or what the limit has room for.
    [(0.5, 0.2, 3), (300.0, 10.0, 3), (1.0, 10.0, 1 + 15 + 1)],
)
def test_slow_calls_keep_to_the_limit(seconds: float, limit: float, most: int) -> None:
    clock = _SlowClock()
    backend = CpuBackend(clock)
    work = Work(clock.call, (seconds,))
    plan = Plan(max_seconds=limit)
    found = measure({"slow": work}, plan, backend, torch.device("cpu"))["slow"]
    assert clock.calls <= most
    assert found.device_us == pytest.approx(seconds * 1e6)
    assert len(found.samples_us) >= 1
    assert clock.calls == 3 or found.stopped == "precision"
    if clock.calls == 3:
        assert found.stopped == "time limit"
        assert f"the warm-up ended at its limit of {limit / 2:g} s" in found.notes[0]


@pytest.mark.parametrize(
    ("fn", "error", "message"),
    [
        (7, TypeError, "fn is a function or a mapping of functions, but got 7"),
        ({"a": 7}, TypeError, "but that of 'a' is 7"),
        ({1: int}, TypeError, "the names of contenders are texts, but got 1"),
        ({}, ValueError, "it is empty"),
    ],
)
def test_no_function(fn, error, message) -> None:
    with pytest.raises(error, match=message):
        quick(fn)


def test_lines_that_wait_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiers are asked in turn until one sees something."""
    detector_stub.install(monkeypatch)
    asked = []
    monkeypatch.setattr(
        tiers, "_made", lambda n, recorder: asked.append(n) or detector_stub.StubTier(recorder, n)
    )

    def step() -> None:
        detector_stub.wait()

    line = inspect.getsourcelines(step)[1] + 1
    expected = f"line {__file__}:{line} (Tensor.item: detector_stub.wait())"
    assert waits_of(step, (2, 0)) == expected
    assert asked == [2]
    assert waits_of(lambda: None, (2, 0)) == ""
    assert asked == [2, 2, 0]


def test_lines_of_packages_are_named_as_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Result files are shown to others."""
    detector_stub.install(monkeypatch)
    monkeypatch.setattr(tiers, "_made", lambda n, recorder: detector_stub.StubTier(recorder, n))
    names = {"wait": detector_stub.wait}
    code = "def step():\n    wait()\n"
    exec(compile(code, "/home/me/lib/python3.12/site-packages/peer/psnr.py", "exec"), names)
    assert waits_of(names["step"], (2,)).startswith("line site-packages/peer/psnr.py:2 (")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu() -> None:
    with pytest.raises(BenchmarkError, match="torch sees no CUDA device here"):
        syncfree.benchmark(int, device="cuda")


def test_device_of_the_arguments() -> None:
    cpu = torch.zeros(2)
    assert device_of(None, (cpu, 7)).type == "cpu"
    assert device_of("cpu", ()).type == "cpu"
    with pytest.raises(ValueError, match="device is the CPU or a CUDA device, but got meta"):
        device_of(None, (torch.zeros(2, device="meta"), cpu))
    with pytest.raises(ValueError, match="one as \"cuda:0\", but got 'gpu'"):
        device_of("gpu", ())


def test_errors_of_the_function_pass_through() -> None:
    with pytest.raises(ZeroDivisionError):
        quick(lambda: 1 / 0)


def test_import_is_light() -> None:
    """pytest loads the plugin in every project."""
    code = (
        "import sys, syncfree.benchmarking.pytest_plugin\n"
        "print([m for m in ('torch', 'pytest_benchmark', 'rich', 'pynvml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
