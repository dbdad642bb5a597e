"""`syncfree.EventTimer` and `timed` as programs use them, on every device of this machine."""

from __future__ import annotations

import asyncio
import copy
import functools
import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import syncfree
from fake_driver import FakeDriver
from syncfree import EventTimer, timed
from syncfree.errors import DeviceError, TimerError
from syncfree.timing import default_timer
from timing_cases import work


def test_a_loop(timer: EventTimer, device: str) -> None:
    for _ in range(20):
        with timer.region("step"):
            with timer.region("forward"):
                work(device)
            region = timer.start("backward")
            work(device)
            region.stop()
    timer.wait()
    summary = timer.summary()
    assert [summary[name].count for name in ("step", "forward", "backward")] == [20, 20, 20]
    assert summary["step"].share == pytest.approx(1)
    assert summary["forward"].share + summary["backward"].share <= 1
    assert summary["step"].flags["first"] == 1
    by_sequence = {each.sequence: each for each in timer.samples()}
    for each in timer.samples():
        if each.name != "step":
            parent = by_sequence[each.parent]
            assert parent.name == "step"
            assert each.gpu_us <= parent.gpu_us + 1
    assert timer.json()["regions"][0]["name"] == "step"
    assert len(timer.to_chrome_trace()["traceEvents"]) > 60
    assert repr(timer).startswith("EventTimer(3 names")
    timer.clear()
    assert timer.samples() == []


def test_the_host_clock_measures_the_host() -> None:
    timer = EventTimer("cpu")
    before = time.perf_counter()
    with timer.region("sleep"):
        time.sleep(0.02)
    took = (time.perf_counter() - before) * 1e6
    (sample,) = timer.samples()
    assert 20_000 <= sample.gpu_us <= took
    assert sample.gpu_us == sample.host_enqueue_us
    assert sample.host_clock
    assert before * 1e6 <= sample.gpu_start_us <= time.perf_counter() * 1e6
    assert timer.summary().notes == ["Times are of the host's clock, as was asked."]


def test_where_there_is_no_gpu_the_results_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    timer = EventTimer()
    assert timer.clock == "the host's clock, because torch sees no GPU"
    with timer.region("r"):
        pass
    assert "because torch sees no GPU" in str(timer.summary())
    assert "without a GPU" in timer.summary()["r"].verdict
    with pytest.raises(DeviceError, match="asked for cuda:0, but torch sees no GPU"):
        EventTimer("cuda:0")


def test_a_driver_that_does_not_load_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SYNCFREE_LIBCUDA", str(tmp_path / "none.so"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert "does not load" in EventTimer().clock
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    with pytest.raises(DeviceError, match="cannot use cuda: the CUDA driver library does not"):
        EventTimer("cuda")
    with pytest.raises(DeviceError, match="there are 1 GPUs, but got cuda:1"):
        EventTimer(1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="tier 0 stands in for a GPU")
def test_programs_under_tier_0_of_the_detector(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SYNCFREE_LIBCUDA", str(tmp_path / "none.so"))
    monkeypatch.setattr(torch.version, "cuda", None)
    with syncfree.detect_syncs(tier=0) as report:
        timer = EventTimer("cuda", nvtx=True)
        with timer.track_transfers(), timer.region("step"):
            (torch.ones(3).cuda() * 2).sum()
        timer.summary()
    assert timer.clock.startswith("the host's clock, because the CUDA driver library does not")
    assert timer.summary()["step"].count == 1
    assert report.count == 0, str(report)


@pytest.mark.parametrize("device", ["meta", "mps"])
def test_devices_without_a_timer(device: str) -> None:
    with pytest.raises(DeviceError, match=f"a CUDA device or the CPU, but got {device}"):
        EventTimer(device)


@pytest.mark.parametrize(
    ("device", "error"),
    [(3.5, TypeError), ("nonsense", TypeError), ("cuda:-1", TypeError), (-1, DeviceError)],
)
def test_no_device_at_all(device: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"a timer takes 'cuda', .* but got {device!r}"):
        EventTimer(device)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_time_for_themselves(again: Callable[[Any], Any]) -> None:
    """As of a model that holds a timer, and of a callback that goes to another process."""
    model = nn.Module()
    model.timer = EventTimer("cpu", capacity=7, history=2)
    with model.timer.region("step"):
        pass
    copied = again(model).timer
    assert copied.recording().histories == ()
    for _ in range(3):
        with copied.region("other"):
            pass
    assert [len(each.samples) for each in copied.recording().histories] == [2]
    assert [each.name for each in model.timer.summary().regions] == ["step"]


def test_threads(timer: EventTimer, device: str) -> None:
    barrier = threading.Barrier(4)

    def run(number: int) -> int:
        barrier.wait(30)
        for _ in range(100):
            with timer.region(f"thread {number}"), timer.region("inner"):
                work(device)
        return threading.get_ident()

    with ThreadPoolExecutor(4) as pool:
        identities = list(pool.map(run, range(4)))
    timer.wait()
    summary = timer.summary()
    assert summary["inner"].count == 400
    for number, identity in enumerate(identities):
        assert summary[f"thread {number}"].count == 100
        mine = [s for s in timer.samples() if s.name == f"thread {number}"]
        assert {s.thread for s in mine} == {identity}
        assert {s.depth for s in mine} == {0}
        sequences = {s.sequence for s in mine}
        inner = [s for s in timer.samples() if s.name == "inner" and s.thread == identity]
        assert {s.parent for s in inner} == sequences


def test_timed_functions(timer: EventTimer, device: str) -> None:
    @timed(timer=timer)
    def plain(x: int, *, more: int = 0) -> int:
        """Doc."""
        return x + more

    @timed(name="named", kind="h2d", timer=timer)
    def other() -> None:
        pass

    @timed(timer=timer)
    async def later() -> str:
        await asyncio.sleep(0)
        return "done"

    @timed(timer=timer, name="fails")
    def fails() -> None:
        raise KeyError

    assert plain(1, more=2) == 3
    assert (plain.__doc__, plain.__name__) == ("Doc.", "plain")
    other()
    assert asyncio.run(later()) == "done"
    with pytest.raises(KeyError):
        fails()
    assert timer.wrap(len)([1, 2]) == 2
    timer.wait()
    names = {(r.name.split(".")[-1], r.kind) for r in timer.summary().regions}
    assert names == {
        ("plain", "compute"),
        ("named", "h2d"),
        ("later", "compute"),
        ("fails", "compute"),
        ("len", "compute"),
    }


class _Awaited:
    async def __call__(self) -> str:
        await asyncio.sleep(0.01)
        return "done"


def test_an_object_whose_call_is_a_coroutine() -> None:
    timer = EventTimer("cpu")
    assert asyncio.run(timer.wrap(_Awaited())()) == "done"
    assert timer.summary()["_Awaited"].min_us >= 10_000


def test_the_decorator_above_staticmethod_and_classmethod() -> None:
    timer = EventTimer("cpu")

    class Model:
        @timed(timer=timer, name="static")
        @staticmethod
        def static(x: int) -> int:
            return x

        @timed(timer=timer, name="of the class")
        @classmethod
        def of_the_class(cls) -> str:
            return cls.__name__

    assert (Model.static(1), Model().static(2)) == (1, 2)
    assert (Model.of_the_class(), Model().of_the_class()) == ("Model", "Model")
    assert {r.name: r.count for r in timer.summary().regions} == {"static": 2, "of the class": 2}


def test_partials_of_two_functions_are_two_regions() -> None:
    timer = EventTimer("cpu")
    for function in (sum, len):
        timer.wrap(functools.partial(function, [1, 2]))()
    assert {r.name for r in timer.summary().regions} == {"sum", "len"}


def test_the_default_timer() -> None:
    @syncfree.timed
    def step() -> None:
        pass

    step()
    assert default_timer() is default_timer()
    default_timer().wait()
    name = "test_the_default_timer.<locals>.step"
    assert default_timer().summary()[name].count == 1
    default_timer().clear()


def _generator() -> Any:
    yield 1


async def _async_generator() -> Any:
    yield 1


class _Pieces:
    def __call__(self) -> Any:
        yield 1


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (3, "a function or a metric, but got int"),
        (nn.Linear, "but got the class Linear"),
        (_generator, "generator function _generator, whose code runs in pieces"),
        (_async_generator, "generator function _async_generator"),
        (functools.partial(_generator), "generator function _generator"),
        (_Pieces(), "generator function _Pieces"),
    ],
)
def test_what_cannot_be_timed(target: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        timed(target)


@pytest.mark.parametrize("wrong", [EventTimer, "cpu"])
def test_what_is_no_timer_is_refused_before_the_first_call(wrong: Any) -> None:
    for take in (syncfree.timing.lightning_callback, lambda timer: timed(timer=timer)):
        with pytest.raises(TypeError, match="takes an EventTimer as its timer, but got"):
            take(wrong)


def test_what_is_no_kind_is_refused_before_the_first_call() -> None:
    with pytest.raises(ValueError, match="kind must be 'compute', 'h2d' or 'd2h', but got 'bad'"):
        timed(kind="bad")  # type: ignore[call-overload]


def test_the_timer_of_a_gpu_without_one(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: fake.device)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: fake.device, raising=False)
    monkeypatch.setattr(
        torch._C, "_cuda_getCurrentRawStream", lambda device: 10 + device, raising=False
    )
    monkeypatch.setattr("syncfree.timing.timer.current_device_address", lambda: 0)
    monkeypatch.setattr("syncfree.timing.timer.current_stream_address", lambda: 0)
    timer, fixed = EventTimer(), EventTimer("cuda:1", stamp_every=1)
    assert timer.clock == fixed.clock == "CUDA events"
    with timer.region("r"), fixed.region("r"):
        fake.work(100, 10)
        fake.work(200, 11)
    assert timer.samples() == []
    assert timer.summary().notes == ["1 region had not ended on the GPU yet."]
    fake.let_pass(200)
    (here,), (there,) = timer.samples(), fixed.samples()
    assert (here.device, here.stream, round(here.gpu_us)) == (0, 10, 100)
    assert (there.device, there.stream, round(there.gpu_us)) == (1, 11, 200)
    assert there.mhz == pytest.approx(1980, rel=1e-3)
    assert timer.summary().notes == []
    assert "GPU-bound" in timer.summary()["r"].verdict


def test_a_region_that_is_open_twice(timer: EventTimer) -> None:
    region = timer.region("r")
    with region, pytest.raises(TimerError, match="is open already"):
        region.start()


def test_memory_is_flat(timer: EventTimer) -> None:
    """A region leaves nothing behind once the samples that are kept have their places."""
    import tracemalloc

    region = timer.region("r")

    def many() -> None:
        for _ in range(3000):
            with timer.region("r"):
                pass
            with region:
                pass

    many()
    timer.poll()
    tracemalloc.start()
    many()
    before = tracemalloc.take_snapshot()
    many()
    timer.poll()
    after = tracemalloc.take_snapshot()
    tracemalloc.stop()
    grown = sum(each.size_diff for each in after.compare_to(before, "filename"))
    assert grown < 20_000
