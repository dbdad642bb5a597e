"""Readings of NVML, with a package in its place."""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch

import syncfree
from syncfree.errors import MissingExtraError
from syncfree.timing.companion import Companion
from syncfree.timing.nvml import Monitor, Reading
from syncfree.timing.samples import History, Recording, Sample
from syncfree.timing.summary import Summary


class NVMLError(Exception):
    pass


def refuse(*_: object) -> None:
    raise NVMLError("Not Supported")


def package(**other: object) -> SimpleNamespace:
    """As nvidia-ml-py; `calls` lists what was asked."""
    calls: list[str] = []

    def answer(name: str, value: object):
        def call(*_: object) -> object:
            calls.append(name)
            return value

        return call

    answers = {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlDeviceGetHandleByUUID": "handle",
        "nvmlDeviceGetClockInfo": 1755,
        "nvmlDeviceGetPowerUsage": 325_500,
        "nvmlDeviceGetTemperature": 41,
        "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
    }
    functions = {name: answer(name, value) for name, value in answers.items()}
    constants = {"NVML_CLOCK_SM": 1, "NVML_TEMPERATURE_GPU": 0, "NVMLError": NVMLError}
    return SimpleNamespace(calls=calls, **{**functions, **constants, **other})


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch):
    def use(nvml: SimpleNamespace | None) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", nvml)

    return use


def test_reading(install) -> None:
    nvml = package()
    install(nvml)
    with Monitor("GPU-1", period=0.001) as monitor:
        assert monitor.latest() == Reading(1755.0, 325.5, 41.0, 0x4)
        end = time.monotonic() + 30
        while nvml.calls.count("nvmlDeviceGetClockInfo") < 3 and time.monotonic() < end:
            time.sleep(0.001)
        assert nvml.calls.count("nvmlDeviceGetClockInfo") >= 3
    assert nvml.calls[-1] == "nvmlShutdown"
    count = len(nvml.calls)
    time.sleep(0.01)
    assert len(nvml.calls) == count
    assert monitor.note == ""


def test_it_never_sets_anything(install) -> None:
    nvml = package()
    install(nvml)
    with Monitor("GPU-1"):
        pass
    assert all("Get" in name or name in ("nvmlInit", "nvmlShutdown") for name in nvml.calls)


def test_what_a_gpu_does_not_tell_is_none(install) -> None:
    install(package(nvmlDeviceGetPowerUsage=refuse, nvmlDeviceGetCurrentClocksEventReasons=refuse))
    with Monitor("GPU-1") as monitor:
        assert monitor.latest() == Reading(1755.0, None, 41.0, 0)


def test_the_older_name_of_the_reasons(install) -> None:
    nvml = package(nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 0x40)
    del nvml.nvmlDeviceGetCurrentClocksEventReasons
    install(nvml)
    with Monitor("GPU-1") as monitor:
        assert monitor.latest().reasons == 0x40


@pytest.mark.parametrize(
    ("nvml", "note"),
    [
        (None, "nvidia-ml-py is not installed"),
        (package(nvmlInit=refuse), "NVML says Not Supported"),
        (package(nvmlDeviceGetHandleByUUID=refuse), "of GPU-1: NVML says Not Supported"),
    ],
)
def test_where_there_is_no_nvml(install, nvml, note) -> None:
    install(nvml)
    with Monitor("GPU-1") as monitor:
        assert monitor.latest() is None
    assert note in monitor.note


def test_no_gpu_asks_nobody(install) -> None:
    nvml = package()
    install(nvml)
    with Monitor(None) as monitor:
        assert monitor.latest() is None
    assert nvml.calls == []
    assert monitor.note == ""


def test_readings_have_their_times(install) -> None:
    install(package())
    begin = time.perf_counter()
    with Monitor("GPU-1", period=0.001, keep=3) as monitor:
        end = time.monotonic() + 30
        while len(monitor.readings()) < 3 and time.monotonic() < end:
            time.sleep(0.001)
        seen = monitor.readings()
    assert len(seen) == 3 == len(monitor.readings())
    times = [seconds for seconds, _ in seen]
    assert times == sorted(times)
    assert begin <= times[0] <= times[-1] <= time.perf_counter()
    assert {reading for _, reading in seen} == {Reading(1755.0, 325.5, 41.0, 0x4)}


# Beside the samples of a timer


class Owner:
    pass


def step(middle_s: float, device: int = 0, gpu_us: float = 200.0, **fields: object) -> Sample:
    begin = middle_s * 1e6 - gpu_us / 2
    return Sample("step", device=device, gpu_start_us=begin, gpu_us=gpu_us, **fields)


def attached(companion: Companion, *samples: Sample) -> tuple[Sample, ...]:
    (history,) = companion.attach([History.of(list(samples))])
    return history.samples


def test_a_sample_gets_the_reading_that_is_nearest(install, monkeypatch) -> None:
    install(package())
    told = [
        (1.0, Reading(1980.0, 300.0, 40.0, 0)),
        (1.1, Reading(1500.0, 690.0, 60.0, 0x4 | 0x40)),
    ]
    monkeypatch.setattr(Monitor, "readings", lambda self: told)
    companion = Companion(Owner(), 0, None, period=0.1)
    early, late, other, far, long = attached(
        companion,
        step(1.04),
        step(1.06),
        step(1.06, device=1),
        step(7.0),
        step(7.0, gpu_us=20e6),
    )
    assert (early.nvml_mhz, early.watts, early.celsius) == (1980.0, 300.0, 40.0)
    assert early.throttle == ()
    assert late.throttle == ("software power cap", "hardware thermal slowdown")
    assert late.watts == long.watts == 690.0
    for unknown in (other, far):
        assert unknown.throttle is None
        assert unknown.watts is None
    assert late.as_dict()["throttle"] == list(late.throttle)


def test_the_summary_says_what_nvml_said() -> None:
    capped = [
        step(n, nvml_mhz=1500.0, watts=690.0 + n, celsius=60.0, throttle=("software power cap",))
        for n in range(3)
    ]
    free = step(4, nvml_mhz=1980.0, watts=300.0, celsius=41.0, throttle=())
    silent = step(5)
    summary = Summary(Recording((History.of([*capped, free, silent]),), remarks=("Said.",)))
    region = summary["step"]
    assert (region.nvml_mhz, region.watts, region.celsius) == (1500.0, 690.5, 60.0)
    assert region.throttle == {"software power cap": 3}
    assert "the clock is held down by software power cap" in region.verdict
    assert "Said." in summary.notes
    document = json.loads(json.dumps(summary.json(samples=True)))
    assert document["regions"][0]["throttle"] == {"software power cap": 3}
    spans = [each for each in summary.to_chrome_trace()["traceEvents"] if each["ph"] == "X"]
    assert spans[0]["args"]["watts"] == 690.0
    assert "throttle" not in spans[-1]["args"]
    alone = Summary(Recording((History.of([silent]),)))["step"]
    assert alone.throttle is None
    assert "held down" not in alone.verdict


def test_the_thread_ends_with_the_timer(install) -> None:
    nvml = package()
    install(nvml)
    owner = Owner()
    companion = Companion(owner, 0, "GPU-1", period=0.001)
    assert nvml.calls.count("nvmlShutdown") == 0
    del owner
    gc.collect()
    assert nvml.calls[-1] == "nvmlShutdown"
    assert companion.notes == ()


def test_a_monitor_may_be_stopped_by_its_own_thread(install) -> None:
    """Collection of the timer may happen in any thread."""
    ends: list[Monitor] = []

    def stop(*_: object) -> int:
        if threading.current_thread().name == "syncfree-nvml":
            ends[0].stop()
        return 41

    nvml = package(nvmlDeviceGetTemperature=stop)
    install(nvml)
    monitor = Monitor("GPU-1", period=0.001)
    ends.append(monitor)
    monitor.start()
    end = time.monotonic() + 30
    while "nvmlShutdown" not in nvml.calls and time.monotonic() < end:
        time.sleep(0.001)
    assert nvml.calls[-1] == "nvmlShutdown"


def test_a_timer_without_the_package_says_which_extra(install) -> None:
    install(None)
    with pytest.raises(MissingExtraError, match=r"nvml=True.*syncfree\[bench\]"):
        syncfree.EventTimer("cpu", nvml=True)


def test_a_timer_of_the_host_has_no_readings(install) -> None:
    nvml = package()
    install(nvml)
    timer = syncfree.EventTimer("cpu", nvml=True)
    with timer.region("step"):
        pass
    assert timer.samples()[0].watts is None
    assert "No NVML readings: the times are not of a GPU." in timer.summary().notes
    assert nvml.calls == []


@pytest.mark.needs_cuda
def test_a_timer_of_a_gpu_has_readings() -> None:
    """Where the package is not installed, it says so; there is no third way."""
    if find_spec("pynvml") is None:
        with pytest.raises(MissingExtraError):
            syncfree.EventTimer(nvml=True)
        return
    timer = syncfree.EventTimer(nvml=True)
    x = torch.rand(512, 512, device="cuda")
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        with timer.region("matmul"):
            x = (x @ x).softmax(1)
        timer.poll()
    timer.wait()
    newest = timer.samples()[-1]
    assert newest.nvml_mhz > 100
    assert newest.watts is None or 10 < newest.watts < 2000
    assert 5 < newest.celsius < 120
    assert newest.throttle is not None
    assert timer.summary()["matmul"].celsius == pytest.approx(newest.celsius, abs=40)
    with syncfree.detect_syncs(tier=2) as report:
        timer.summary()
    assert report.count == 0


def test_an_error_inside_stops_the_thread(install) -> None:
    nvml = package()
    install(nvml)
    with pytest.raises(KeyError), Monitor("GPU-1", period=0.001):
        raise KeyError
    assert nvml.calls[-1] == "nvmlShutdown"
