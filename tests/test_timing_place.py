"""On which device and stream a region is, and who is asked for them."""

from __future__ import annotations

import pytest
import torch

from fake_driver import NEAR, FakeDriver, samples_of
from syncfree import EventTimer, _runtime
from syncfree._torch_functions import current_device_address, current_stream_address


def never(*_: object) -> int:
    raise AssertionError("asked in Python")


def functions(fake: FakeDriver) -> dict[str, int]:
    return {
        "device_function": fake.address("fake_device"),
        "stream_function": fake.address("fake_stream_of"),
    }


def test_device_and_stream_by_c_functions(fake: FakeDriver) -> None:
    timer = _runtime.RegionTimer(never, never, stamp_every=0, **functions(fake))
    with timer.region("r"):
        fake.work(10, 0x901)
    fake.let_pass(10)
    assert timer.poll() == 1
    (sample,) = samples_of(timer)
    assert (sample.device, sample.stream) == (1, 0x901)
    assert sample.gpu_us == pytest.approx(10, **NEAR)


def test_where_the_c_functions_fail_python_is_asked(fake: FakeDriver) -> None:
    asked: list[int] = []
    fake.break_device()

    def stream(device: int) -> int:
        asked.append(device)
        return 0x55

    timer = _runtime.RegionTimer(lambda: 2, stream, stamp_every=0, **functions(fake))
    with timer.region("r"):
        pass
    assert asked == [2]
    assert fake.calls("fake_device") == fake.calls("fake_stream_of") == 1
    assert timer.poll() == 1
    assert samples_of(timer)[0].stream == 0x55


def test_a_fixed_device_is_not_asked_for(fake: FakeDriver) -> None:
    devices: list[int] = []
    timer = _runtime.RegionTimer(1, lambda device: devices.append(device) or 7, stamp_every=0)
    for _ in range(2):
        with timer.region("r"):
            pass
    assert devices == [1, 1]
    assert timer.poll() == 2
    assert {(each.device, each.stream) for each in samples_of(timer)} == {(1, 7)}


def test_the_only_gpu_is_not_asked_for(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", never, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", never, raising=False)
    function = fake.address("fake_stream_of")
    monkeypatch.setattr("syncfree.timing.timer.current_stream_address", lambda: function)
    timer = EventTimer()
    with timer.region("r"):
        fake.work(10, 0x900)
    fake.let_pass(10)
    (sample,) = timer.samples()
    assert (sample.device, sample.stream) == (0, 0x900)
    assert timer.json()["bracket_us"] == {"0": pytest.approx(0, **NEAR)}


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch has CUDA")
def test_a_torch_without_cuda_has_no_such_functions() -> None:
    assert current_device_address() == current_stream_address() == 0


@pytest.mark.needs_cuda
def test_torch_has_the_functions_and_they_agree() -> None:
    assert current_device_address() != 0
    assert current_stream_address() != 0
    timer, side = EventTimer(), torch.cuda.Stream()
    with timer.region("default"):
        pass
    with torch.cuda.stream(side), timer.region("side"):
        pass
    timer.wait()
    streams = {each.name: each.stream for each in timer.samples()}
    assert streams == {
        "default": torch.cuda.default_stream().cuda_stream,
        "side": side.cuda_stream,
    }


@pytest.mark.needs_two_gpus
def test_the_device_of_a_block_and_the_one_after_it() -> None:
    timer = EventTimer()
    for device in (1, 0, 1):
        with torch.cuda.device(device), timer.region(f"in {device}"):
            pass
        with timer.region("after"):
            pass
    timer.wait()
    devices = {each.name: each.device for each in timer.samples()}
    assert devices == {"in 1": 1, "in 0": 0, "after": torch.cuda.current_device()}
