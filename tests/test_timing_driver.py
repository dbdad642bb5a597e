"""The timer's C++ against a driver without a GPU: pools, queues, drops, graphs, failures."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fake_driver import FakeDriver, compiled
from syncfree import _runtime
from syncfree.errors import TimerError
from syncfree.timing.samples import Sample, from_runtime

NEAR = {"rel": 1e-6, "abs": 0.01}  # microseconds; the driver gives floats of milliseconds


def samples_of(timer: _runtime.RegionTimer, name: str | None = None) -> list[Sample]:
    found = [each for history in from_runtime(timer.histories()) for each in history.samples]
    found = [each for each in found if name in (None, each.name)]
    return sorted(found, key=lambda each: each.sequence)


def run(timer: _runtime.RegionTimer, fake: FakeDriver, us: float, name: str = "r") -> None:
    with timer.region(name):
        fake.work(us)


def test_a_region_becomes_a_sample_when_the_gpu_has_passed(fake: FakeDriver) -> None:
    timer = fake.timer()
    run(timer, fake, 100)
    assert timer.poll() == 0
    assert timer.counts()["pending"] == 1
    fake.let_pass(99)
    assert timer.poll() == 0
    fake.let_pass(1)
    assert timer.poll() == 1
    (sample,) = samples_of(timer)
    assert sample.gpu_us == pytest.approx(100, **NEAR)
    assert sample.stream == fake.stream
    assert sample.device == 0
    assert sample.first
    assert not sample.captured
    assert sample.thread == threading.get_ident()
    assert fake.calls("cuEventSynchronize") == 0


def test_only_what_has_passed_and_in_order(fake: FakeDriver) -> None:
    timer = fake.timer()
    for us in (10, 20, 30):
        run(timer, fake, us)
    fake.let_pass(30)
    assert timer.poll() == 2
    assert [s.gpu_us for s in samples_of(timer)] == pytest.approx([10, 20], **NEAR)
    before = fake.calls("cuEventElapsedTime")
    assert timer.poll() == 0
    assert fake.calls("cuEventElapsedTime") == before + 1  # of the oldest one, no other
    fake.let_pass(30)
    assert timer.poll() == 1


def test_wait_is_the_only_call_that_waits(fake: FakeDriver) -> None:
    timer = fake.timer()
    for _ in range(200):
        run(timer, fake, 1000)
        timer.poll()
    assert fake.calls("cuEventSynchronize") == 0
    timer.wait()
    assert fake.calls("cuEventSynchronize") == 1
    assert timer.counts()["pending"] == 0


def test_gaps_on_the_stream(fake: FakeDriver) -> None:
    timer = fake.timer()
    run(timer, fake, 10)
    fake.work(7)  # of nobody
    run(timer, fake, 10)
    fake.let_pass(100)  # 73 of them idle
    run(timer, fake, 10)
    fake.let_pass(10)
    timer.poll()
    gaps = [s.gpu_gap_us for s in samples_of(timer)]
    assert gaps[0] is None
    assert gaps[1:] == pytest.approx([7, 73], **NEAR)
    starts = [s.gpu_start_us for s in samples_of(timer)]
    assert starts[1] - starts[0] == pytest.approx(17, **NEAR)
    assert starts[2] - starts[0] == pytest.approx(100, **NEAR)


def test_nested_regions(fake: FakeDriver) -> None:
    timer = fake.timer()
    for _ in range(2):
        with timer.region("step"):
            run(timer, fake, 10, "forward")
            fake.work(3)
            run(timer, fake, 20, "backward")
    fake.let_pass(100)
    assert timer.poll() == 6
    step, again = samples_of(timer, "step")
    forward, backward = samples_of(timer, "forward"), samples_of(timer, "backward")
    assert step.gpu_us == pytest.approx(33, **NEAR)
    assert step.depth == step.parent == 0
    assert [s.parent for s in forward] == [s.parent for s in backward] == [1, again.sequence]
    assert {s.depth for s in (*forward, *backward)} == {1}
    assert [s.gpu_gap_us for s in forward] == [None, None]  # nothing before in the same step
    assert [s.gpu_gap_us for s in backward] == pytest.approx([3, 3], **NEAR)
    assert again.gpu_gap_us == pytest.approx(0, **NEAR)
    assert forward[0].gpu_start_us == pytest.approx(step.gpu_start_us, **NEAR)


def test_streams_do_not_hold_each_other_up(fake: FakeDriver) -> None:
    timer = fake.timer()
    for stream, us in ((1, 1000), (2, 10), (3, 30)):
        fake.stream = stream
        run(timer, fake, us)
    fake.let_pass(50)
    assert timer.poll() == 2
    assert [(s.stream, round(s.gpu_us)) for s in samples_of(timer)] == [(2, 10), (3, 30)]


def test_the_end_is_on_the_stream_of_the_beginning(fake: FakeDriver) -> None:
    timer = fake.timer()
    with timer.region("r"):
        fake.work(10)
        fake.stream = 2
        fake.work(500)
    fake.let_pass(10)
    assert timer.poll() == 1
    (sample,) = samples_of(timer)
    assert sample.gpu_us == pytest.approx(10, **NEAR)


def test_more_streams_than_queues(fake: FakeDriver) -> None:
    timer = fake.timer()
    for stream in range(1, 500):
        fake.stream = stream
        run(timer, fake, stream)
        fake.let_pass(stream)
        assert timer.poll() == 1
    expected = list(range(1, 500))
    assert [s.gpu_us for s in samples_of(timer)] == pytest.approx(expected, **NEAR)
    assert {s.stream for s in samples_of(timer)} == set(expected)
    assert {s.gpu_gap_us for s in samples_of(timer)} == {None}  # each the first of its stream


def test_full_slots_drop_the_oldest(fake: FakeDriver) -> None:
    timer = fake.timer(capacity=4)
    for us in range(1, 8):
        run(timer, fake, us)
    assert timer.counts()["dropped"] == 3
    fake.let_pass(100)
    assert timer.poll() == 4
    assert [s.gpu_us for s in samples_of(timer)] == pytest.approx([4, 5, 6, 7], **NEAR)


def test_the_oldest_of_all_streams_is_dropped(fake: FakeDriver) -> None:
    timer = fake.timer(capacity=3)
    for stream in (7, 8, 7, 9):
        fake.stream = stream
        run(timer, fake, 10 * stream)
    fake.let_pass(1000)
    timer.poll()
    assert [(s.sequence, s.stream) for s in samples_of(timer)] == [(2, 8), (3, 7), (4, 9)]


def test_what_has_passed_is_not_dropped(fake: FakeDriver) -> None:
    timer = fake.timer(capacity=4)
    for us in range(1, 100):
        run(timer, fake, us)
        fake.let_pass(us)
    timer.poll()
    assert timer.counts()["dropped"] == 0
    assert len(samples_of(timer)) == 99


def test_more_open_regions_than_slots(fake: FakeDriver) -> None:
    timer = fake.timer(capacity=2)
    with timer.region("a"), timer.region("b"):
        with pytest.raises(TimerError, match="larger capacity"):
            timer.region("c").start()
        fake.work(5)
    fake.let_pass(5)
    assert timer.poll() == 2


def test_nothing_is_made_after_the_start(fake: FakeDriver) -> None:
    timer = fake.timer(capacity=128, stamp_every=8)
    timer.prepare(0)
    run(timer, fake, 1)
    fake.let_pass(1)
    timer.poll()
    made = fake.events(), fake.calls("cuMemHostAlloc"), fake.calls("cuModuleLoadData")
    for _ in range(20_000):
        run(timer, fake, 1)
        fake.let_pass(1)
    timer.wait()
    assert (fake.events(), fake.calls("cuMemHostAlloc"), fake.calls("cuModuleLoadData")) == made
    assert timer.counts()["lost"] == 0
    ((_, _, count, total, least, kept),) = timer.histories()
    assert count == 20_001
    assert timer.counts()["dropped"] == 0
    assert len(kept) == 1024
    assert least == pytest.approx(1, **NEAR)
    assert total >= count * 0.99


def test_events_serve_the_next_timer(fake: FakeDriver) -> None:
    for _ in range(20):
        timer = fake.timer(stamp_every=1)
        run(timer, fake, 100)
        made = fake.events()
        del timer
    assert fake.events() == made


def test_the_regions_between_polls_are_looked_at(fake: FakeDriver) -> None:
    timer = fake.timer(capacity=2048)
    for _ in range(2000):
        run(timer, fake, 1)
        fake.let_pass(1)
    assert timer.counts()["pending"] < 100  # nobody has polled


def test_clock_stamps(fake: FakeDriver) -> None:
    timer = fake.timer(stamp_every=2)
    fake.set_clock(1500.0, 3)
    for us in (100, 100, 49, 49, 100, 100):
        run(timer, fake, us)
        fake.let_pass(us)
    timer.poll()
    clocks = [s.mhz for s in samples_of(timer)]
    assert clocks[0] is clocks[2] is clocks[4] is None  # not stamped
    assert clocks[3] is None  # too short
    assert clocks[1] == pytest.approx(1500, rel=1e-3)
    assert clocks[5] == pytest.approx(1500, rel=1e-3)


def test_no_clock_from_two_sms(fake: FakeDriver) -> None:
    timer = fake.timer(stamp_every=1)
    with timer.region("r"):
        fake.work(100)
        fake.set_clock(1500.0, 4)
    fake.let_pass(100)
    assert timer.poll() == 1
    assert samples_of(timer)[0].mhz is None


def test_whether_the_gpu_had_begun(fake: FakeDriver) -> None:
    timer = fake.timer()
    run(timer, fake, 100)  # on an idle stream
    run(timer, fake, 100)  # behind the first
    fake.let_pass(200)
    run(timer, fake, 100)
    fake.let_pass(100)
    timer.poll()
    assert [s.queued for s in samples_of(timer)] == [False, True, False]


def test_captured_regions_are_read_after_replays(fake: FakeDriver) -> None:
    timer = fake.timer()
    side = 0x77
    fake.begin_capture(side)
    fake.stream = side
    with timer.region("step"):
        run(timer, fake, 10, "forward")
        run(timer, fake, 20, "backward")
    fake.end_capture(side)
    fake.stream = 0x55
    fake.let_pass(100)
    assert timer.poll() == 0  # not replayed yet
    fake.replay(side, fake.stream)
    fake.let_pass(29)
    assert timer.poll() == 1  # forward
    fake.let_pass(1)
    assert timer.poll() == 2
    assert timer.poll() == 0  # each replay once
    fake.let_pass(1000)
    fake.replay(side, fake.stream)
    assert timer.poll() == 0
    fake.let_pass(30)
    assert timer.poll() == 3
    assert fake.unsafe_calls() == 0
    for name, us in (("step", 30), ("forward", 10), ("backward", 20)):
        found = samples_of(timer, name)
        assert [s.gpu_us for s in found] == pytest.approx([us, us], **NEAR)
        assert all(s.captured and s.host_enqueue_us is None for s in found)
        assert [s.first for s in found] == [True, False]
    starts = sorted(s.gpu_start_us for s in samples_of(timer, "step"))
    assert starts[1] - starts[0] == pytest.approx(1030, **NEAR)


def test_replays_long_after_the_timer_was_made(fake: FakeDriver) -> None:
    """The driver's times are floats of milliseconds: after hours they would tell nothing apart."""
    timer = fake.timer()
    side, hour = 0x77, 3.6e9 + 12_345.678
    fake.begin_capture(side)
    fake.stream = side
    run(timer, fake, 10)
    fake.end_capture(side)
    fake.let_pass(hour)
    for _ in range(3):
        fake.replay(side, 0x55)
        fake.let_pass(10)
        assert timer.poll() == 1
        assert timer.poll() == 0  # meanwhile the clock is moved
        fake.let_pass(90)
    starts = sorted(s.gpu_start_us for s in samples_of(timer))
    assert starts[2] - starts[1] == pytest.approx(100, abs=0.1)
    assert [s.gpu_us for s in samples_of(timer)] == pytest.approx([10] * 3, **NEAR)


def test_a_capture_elsewhere_is_not_spoilt(fake: FakeDriver) -> None:
    timer = fake.timer(stamp_every=4)
    fake.begin_capture(0x77)
    for _ in range(100):  # makes its events and kernels, probes, stamps and polls
        run(timer, fake, 10)
        fake.let_pass(10)
        timer.poll()
    assert fake.unsafe_calls() == 0
    assert len(samples_of(timer)) == 100
    fake.stream = 0  # the legacy stream must not even be asked to record
    before = fake.calls("cuEventRecord")
    run(timer, fake, 10)
    assert fake.calls("cuEventRecord") == before
    assert timer.counts()["skipped"] == 1


def test_the_context_of_the_thread_stays(fake: FakeDriver) -> None:
    timer = fake.timer()
    fake.device = 2
    run(timer, fake, 10)
    assert fake.context() == 0x100
    fake.set_context(0)  # a thread that has not met CUDA
    run(timer, fake, 10)
    fake.let_pass(20)
    assert timer.poll() == 2
    assert fake.context() == 0
    assert [s.device for s in samples_of(timer)] == [2, 2]


def test_a_device_that_is_not_there(fake: FakeDriver) -> None:
    timer = fake.timer()
    fake.device = 9
    with pytest.raises(TimerError, match="cuDeviceGet failed"):
        timer.region("r").start()
    with pytest.raises(TimerError, match="cuDeviceGet failed"):
        timer.prepare(9)


def test_kernels_that_do_not_load(fake: FakeDriver) -> None:
    fake.device = 3  # whose context has none yet
    fake.break_compiler()
    with pytest.raises(TimerError, match=r"cuModuleLoadData failed.*stamp_every=0 does without"):
        fake.timer(stamp_every=64).prepare(3)
    fake.timer(stamp_every=0).prepare(3)


def test_failures_of_the_driver(fake: FakeDriver) -> None:
    timer = fake.timer()
    run(timer, fake, 10)
    region = timer.region("r").start()
    fake.fail(719)
    with pytest.raises(TimerError, match=r"CUDA_ERROR_LAUNCH_FAILED \(719\)"):
        region.stop()
    with pytest.raises(TimerError, match="719"):
        timer.region("r").start()
    assert timer.poll() == 1  # lost, not asked for again
    counts = timer.counts()
    assert (counts["pending"], counts["lost"]) == (0, 2)
    assert "CUDA_ERROR_LAUNCH_FAILED" in counts["problem"]
    assert samples_of(timer) == []


def test_a_failure_does_not_hide_the_exception_of_the_block(fake: FakeDriver) -> None:
    timer = fake.timer()
    region = timer.region("r").start()
    fake.fail(719)
    error = KeyError()
    region.__exit__(KeyError, error, None)  # as an exception on its way does; raises nothing
    assert timer.counts()["lost"] == 1


def test_exceptions_pass_and_the_region_counts(fake: FakeDriver) -> None:
    timer = fake.timer()

    def fails() -> None:
        with timer.region("r"):
            fake.work(10)
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    fake.let_pass(10)
    assert timer.poll() == 1


def test_regions_of_threads(fake: FakeDriver) -> None:
    timer = fake.timer()
    region = timer.region("r").start()
    fake.work(10)
    thread = threading.Thread(target=region.stop)
    thread.start()
    thread.join()
    run(timer, fake, 5, "outermost")
    fake.let_pass(15)
    assert timer.poll() == 2
    first, second = samples_of(timer)
    assert first.gpu_us == pytest.approx(10, **NEAR)
    assert second.depth == 0  # the other thread's end took the region off this one


def test_coroutines_that_take_turns(fake: FakeDriver) -> None:
    timer = fake.timer()

    async def task(name: str, before: float, after: float) -> None:
        with timer.region(name):
            fake.work(before)
            await asyncio.sleep(0)
            fake.work(after)

    async def main() -> None:
        await asyncio.gather(task("a", 1, 10), task("b", 2, 20))

    asyncio.run(main())
    run(timer, fake, 5, "c")
    fake.let_pass(100)
    assert timer.poll() == 3
    by_name = {s.name: s for s in samples_of(timer)}
    assert by_name["a"].gpu_us == pytest.approx(1 + 2 + 10, **NEAR)
    assert by_name["b"].gpu_us == pytest.approx(2 + 10 + 20, **NEAR)
    assert by_name["c"].depth == 0


def test_ends_in_another_order_than_beginnings(fake: FakeDriver) -> None:
    timer = fake.timer()
    first, second = timer.region("first").start(), timer.region("second").start()
    first.stop()
    run(timer, fake, 1, "inside")
    second.stop()
    fake.let_pass(1)
    timer.poll()
    inside, second_one = samples_of(timer, "inside")[0], samples_of(timer, "second")[0]
    assert (inside.parent, inside.depth) == (second_one.sequence, 2)


def test_siblings_that_overlap_have_no_negative_gap(fake: FakeDriver) -> None:
    timer = fake.timer()
    region = timer.region("outer").start()
    fake.work(5)
    thread = threading.Thread(target=lambda: run(timer, fake, 5, "other"))
    thread.start()
    thread.join()
    fake.work(5)
    region.stop()
    fake.let_pass(15)
    assert timer.poll() == 2
    outer, other = samples_of(timer)
    assert (outer.depth, other.depth) == (0, 0)
    assert outer.gpu_us == pytest.approx(15, **NEAR)
    assert outer.gpu_gap_us == 0


def test_one_object_again_and_again(fake: FakeDriver) -> None:
    timer = fake.timer()
    region = timer.region("r", "h2d", bytes=100)
    for size in (100, 200):
        region.bytes = size
        with region:
            fake.work(10)
            with pytest.raises(TimerError, match="'r' is open already"):
                region.start()
    with pytest.raises(TimerError, match="'r' is not open"):
        region.stop()
    fake.let_pass(20)
    timer.poll()
    assert [(s.bytes, s.kind) for s in samples_of(timer)] == [(100, "h2d"), (200, "h2d")]
    assert (region.name, region.kind, region.bytes) == ("r", "h2d", 200)


def test_cancelled_and_forgotten_regions(fake: FakeDriver) -> None:
    timer = fake.timer()
    timer.region("r").start().cancel()
    timer.region("r").cancel()  # not open: nothing to do
    assert timer.counts()["lost"] == 0
    timer.region("r").start()  # and gone
    counts = timer.counts()
    assert counts["lost"] == 1
    assert counts["problem"] == "region 'r' was never ended"
    run(timer, fake, 1)
    fake.let_pass(1)
    timer.poll()
    assert samples_of(timer)[0].depth == 0


def test_clear(fake: FakeDriver) -> None:
    timer = fake.timer()
    run(timer, fake, 1)
    run(timer, fake, 100)
    fake.let_pass(1)
    timer.clear()
    fake.let_pass(100)
    timer.poll()  # it began before
    assert samples_of(timer) == []
    run(timer, fake, 3)
    fake.let_pass(3)
    timer.poll()
    assert [s.gpu_us for s in samples_of(timer)] == pytest.approx([3], **NEAR)
    assert not samples_of(timer)[0].first


def test_nvtx_ranges(fake: FakeDriver) -> None:
    calls: list[str] = []
    timer = fake.timer(push_range=calls.append, pop_range=lambda: calls.append("pop"))
    with timer.region("a"), timer.region("b"):
        pass
    timer.region("c").start().cancel()
    assert calls == ["a", "b", "pop", "pop", "c", "pop"]


def test_a_range_ends_where_its_region_cannot_begin(fake: FakeDriver) -> None:
    calls: list[str] = []

    def push(name: str) -> None:
        calls.append(name)
        fake.fail(719)

    timer = fake.timer(push_range=push, pop_range=lambda: calls.append("pop"))
    with pytest.raises(TimerError, match="cuEventRecord failed"):
        timer.region("a").start()
    assert calls == ["a", "pop"]


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((), {}, TypeError, "must be a str, but got nothing"),
        ((3,), {}, TypeError, "must be a str, but got int"),
        (("a", "compute", 1), {}, TypeError, "got 3 arguments"),
        (("a",), {"name": "a"}, TypeError, "each once, but got 'name'"),
        (("a",), {"size": 3}, TypeError, "but got 'size'"),
        (("a", "copy"), {}, ValueError, "'compute', 'h2d' or 'd2h', but got 'copy'"),
        (("a",), {"kind": 3}, ValueError, "but got 3"),
        (("a",), {"bytes": -1}, ValueError, "must not be negative, but got -1"),
        (("a",), {"bytes": "1"}, TypeError, "integer"),
    ],
)
def test_bad_arguments(
    arguments: tuple, options: dict, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        _runtime.RegionTimer().region(*arguments, **options)


@pytest.mark.parametrize("options", [{"capacity": 0}, {"history": 0}, {"stamp_every": -1}])
def test_bad_options(options: dict) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        _runtime.RegionTimer(**options)


def test_too_many_names() -> None:
    timer = _runtime.RegionTimer(history=1)
    for step in range(4096):
        timer.region(f"step {step}")
    with pytest.raises(TimerError, match="name what a region is, not which one"):
        timer.region("one more")
    timer.region("step 0")


def test_functions_that_fail_or_lie(fake: FakeDriver) -> None:
    def fails() -> int:
        raise OSError("no device")

    with pytest.raises(OSError, match="no device"):
        _runtime.RegionTimer(fails, lambda _: 0).region("r").start()
    with pytest.raises(TypeError):
        _runtime.RegionTimer(lambda: 0, lambda _: "x").region("r").start()
    for options in ({"current_device": lambda: 0}, {"push_range": print}):
        with pytest.raises(TypeError, match="go together"):
            _runtime.RegionTimer(**options)  # type: ignore[arg-type]


def test_a_forked_child_leaves_the_gpu_alone(fake_library: Path) -> None:
    code = """
import os
from syncfree import _runtime
parent = os.getpid()

def current_device():
    assert os.getpid() == parent, "torch raises here"
    return 0

timer = _runtime.RegionTimer(current_device, lambda _: 5)
with timer.region("before"):
    pass
child = os.fork()
if child == 0:
    with timer.region("inside"):
        pass
    os._exit(0 if timer.poll() == 0 and timer.counts()["skipped"] == 1 else 1)
assert os.waitpid(child, 0)[1] == 0
assert timer.counts()["skipped"] == 0
"""
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "SYNCFREE_LIBCUDA": str(fake_library),
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_event_pairs(fake: FakeDriver) -> None:
    pair = _runtime.EventPair()
    assert not pair.ready()
    with pytest.raises(TimerError, match="before it was started"):
        pair.stop(5)
    pair.start(5)
    fake.work(10, 5)
    assert not pair.ready()
    with pytest.raises(TimerError, match="not known yet"):
        pair.microseconds()
    pair.stop(5)
    assert not pair.ready()
    fake.let_pass(10)
    assert pair.ready()
    assert pair.microseconds() == pytest.approx(10, **NEAR)
    pair.start(5)
    assert not pair.ready()


def test_stamps_and_spins(fake: FakeDriver) -> None:
    first, second = _runtime.ClockStamp(), _runtime.ClockStamp()
    assert not first.ready()
    with pytest.raises(TimerError, match="has not arrived"):
        first.read()
    first.record(5)
    assert first.ready()
    _runtime.spin(5, 200.0)
    assert fake.busy_until(5) - fake.now() == 200_000
    second.record(5)
    assert not second.ready()
    fake.let_pass(200)
    assert second.ready()
    assert second.read()[0] - first.read()[0] == 200_000
    assert second.mhz_since(first) == pytest.approx(1980, rel=1e-3)
    fake.set_clock(1980.0, 8)
    second.record(5)
    assert second.mhz_since(first) is None


@pytest.mark.parametrize("us", [-1.0, float("nan"), float("inf"), 1e9])
def test_unbounded_spins_are_refused(fake: FakeDriver, us: float) -> None:
    with pytest.raises(ValueError, match="spin takes 0 to 10000000 microseconds"):
        _runtime.spin(5, us)


def test_without_a_context(fake: FakeDriver) -> None:
    fake.set_context(0)
    for call in (_runtime.EventPair().start, _runtime.ClockStamp().record):
        with pytest.raises(TimerError, match="no CUDA context is current on this thread"):
            call(5)


def test_status_without_a_driver(
    tmp_path: Path, fake_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def status(path: object) -> str:
        monkeypatch.setenv("SYNCFREE_LIBCUDA", str(path))
        return _runtime.cuda_status()

    assert "does not load" in status(tmp_path / "none.so")
    with pytest.raises(TimerError, match=r"no CUDA driver can be used here: .*none\.so"):
        _runtime.EventPair().start(0)
    with pytest.raises(TimerError, match="no CUDA driver can be used here"):
        _runtime.RegionTimer(lambda: 0, lambda _: 0).prepare(0)

    source = tmp_path / "old.cpp"
    source.write_text('extern "C" int cuInit(unsigned) { return 0; }')
    assert "too old: it has no function cuGetErrorName" in status(
        compiled(source, tmp_path / "libold.so")
    )
    for name, init, expected in (
        ("broken", (100, 1), "cuInit failed: CUDA_ERROR_NO_DEVICE (100)"),
        ("empty", (0, 0), "finds no device"),
    ):
        copy = tmp_path / f"lib{name}.so"
        copy.write_bytes(fake_library.read_bytes())
        FakeDriver(copy).set_init(*init)
        assert expected in status(copy)
