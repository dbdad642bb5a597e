"""Readings of NVML, with a package in its place."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

import pytest

from syncfree.benchmarking.nvml import Monitor
from syncfree.benchmarking.samples import Reading


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


def test_an_error_inside_stops_the_thread(install) -> None:
    nvml = package()
    install(nvml)
    with pytest.raises(KeyError), Monitor("GPU-1", period=0.001):
        raise KeyError
    assert nvml.calls[-1] == "nvmlShutdown"
