"""Flags and verdicts of samples whose truth is known because it was made up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sample_cases import GPU_BOUND, LAUNCH_BOUND, series, summary_of
from syncfree.timing.samples import Sample
from syncfree.timing.verdicts import duration, flagged, verdict


def words(samples: list[Sample]) -> str:
    return verdict(flagged(samples))


def test_launch_bound() -> None:
    samples = series(**LAUNCH_BOUND)
    assert all("launch_bound" in s.flags for s in flagged(samples))
    assert words(samples).startswith(
        "launch-bound: host enqueue 520 us for 530 us between the events: capture a graph or fuse"
    )


def test_launch_bound_with_samples_that_show_the_work() -> None:
    behind = series(3, gpu_us=90.0, host_enqueue_us=500.0, queued=True)
    samples = series(17, **LAUNCH_BOUND) + [replace(s, sequence=s.sequence + 17) for s in behind]
    assert words(samples).startswith(
        "launch-bound: host enqueue 520 us for 90 us of GPU work: capture a graph or fuse"
    )


def test_gpu_bound() -> None:
    samples = series(**GPU_BOUND)
    assert not any("launch_bound" in s.flags for s in flagged(samples))
    assert words(samples) == "GPU-bound: 9.8 ms of GPU time, enqueued in 300 us"


def test_a_host_that_the_gpu_holds_up_is_not_launch_bound() -> None:
    """The launch queue is full: the host takes as long as the GPU, because of the GPU."""
    samples = series(gpu_us=1000.0, host_enqueue_us=990.0)
    samples[0] = replace(samples[0], queued=True)  # probed once; holds for those behind it
    assert not any("launch_bound" in s.flags for s in flagged(samples))
    samples[10] = replace(samples[10], queued=False)
    assert ["launch_bound" in s.flags for s in flagged(samples)] == [False] * 10 + [True] * 10


@pytest.mark.parametrize(("enqueue", "expected"), [(81.0, True), (79.0, False)])
def test_where_launch_bound_begins(enqueue: float, expected: bool) -> None:
    (sample,) = flagged([Sample("r", gpu_us=100.0, host_enqueue_us=enqueue, queued=False)])
    assert ("launch_bound" in sample.flags) is expected


def test_the_gpu_starves_between_regions() -> None:
    samples = series(**{**GPU_BOUND, "gpu_gap_us": 6000.0})
    assert words(samples).endswith("; before it the GPU is idle or untimed for 6 ms")


def test_clocks() -> None:
    fast = series(10, mhz=1980.0, **GPU_BOUND)
    slow = series(10, mhz=1200.0, gpu_gap_us=0.0, **GPU_BOUND)
    ramp = series(10, mhz=1200.0, host_gap_us=2e6, **GPU_BOUND)
    highest = {0: 1980.0}
    slow, ramp = list(flagged(slow, highest)), list(flagged(ramp, highest))
    assert {s.flags for s in flagged(fast)} == {("cold", "first"), ()}
    assert {s.flags for s in slow[1:]} == {("throttled",)}
    assert {s.flags for s in ramp[1:]} == {("cold", "ramp")}
    assert {s.flags for s in flagged(slow, {1: 1980.0})[1:]} == {()}  # of another GPU
    assert "; throttled: 1200 MHz" in verdict(slow)
    assert "; the clock ramps: 1200 MHz after gaps" in verdict(ramp)
    nearly = series(10, mhz=1980.0 * 0.91, gpu_gap_us=0.0, **GPU_BOUND)
    assert {s.flags for s in flagged(nearly, highest)[1:]} == {()}


@pytest.mark.parametrize(("gap", "flag"), [(1.01e4, "ramp"), (0.99e4, "throttled")])
@pytest.mark.parametrize("side", ["host_gap_us", "gpu_gap_us"])
def test_where_a_ramp_begins(gap: float, flag: str, side: str) -> None:
    slow = Sample("r", gpu_us=1000.0, mhz=1200.0)
    (sample,) = flagged([replace(slow, **{side: gap})], {0: 1980.0})  # type: ignore[arg-type]
    assert sample.flags == (flag,)


def test_a_low_clock_after_no_known_gap_is_neither() -> None:
    slow = flagged(series(10, mhz=1200.0, **GPU_BOUND), {0: 1980.0})
    assert {s.flags for s in slow[1:]} == {()}
    assert "clock" not in verdict(slow)
    assert "throttled" not in verdict(slow)


@pytest.mark.parametrize(("pause", "flag"), [(2e6, "ramp"), (5.0, "throttled")])
def test_the_pause_before_a_step_is_one_before_what_is_in_it(pause: float, flag: str) -> None:
    """First and second in a region that is first in the step: no gap is known, or a short one."""
    low = {"mhz": 1200.0, **GPU_BOUND}
    steps = series(20, "step", host_gap_us=pause, **low)
    forward = [
        replace(s, name="forward", sequence=s.sequence + 20, parent=s.sequence, host_gap_us=None)
        for s in steps
    ]
    first = [replace(s, name="first", sequence=s.sequence + 20, parent=s.sequence) for s in forward]
    second = [replace(s, name="second", sequence=s.sequence + 20, host_gap_us=3.0) for s in first]
    fast = [Sample("fast", sequence=99, mhz=1980.0)]
    summary = summary_of(steps, forward, first, second, fast)
    for name in ("step", "forward", "first", "second"):
        assert summary[name].flags[flag] == 20
        assert ("throttled" in summary[name].verdict) is (flag == "throttled")


def test_cold_and_first() -> None:
    samples = series(4, **GPU_BOUND)
    samples[2] = replace(samples[2], host_gap_us=1.5e5)
    assert [s.flags for s in flagged(samples)] == [("cold", "first"), (), ("cold",), ()]
    assert words(samples[:1]).endswith("(of the first run alone)")


def test_transfers() -> None:
    samples = series(kind="h2d", gpu_us=100.0, bytes=2_500_000, host_enqueue_us=99.0)
    assert words(samples) == "to the GPU: 100 us a copy, 25 GB/s"
    unknown = series(kind="d2h", gpu_us=100.0)
    assert words(unknown) == "from the GPU: 100 us a copy, of unknown size"


def test_captured_and_host_clock() -> None:
    assert words(series(captured=True, gpu_us=90.0)) == "captured: 90 us a replay"
    host = series(host_clock=True, gpu_us=90.0, host_enqueue_us=90.0, device=-1)
    assert words(host) == "host time: 90 us by the clock, without a GPU"
    assert not any("launch_bound" in s.flags for s in flagged(host))


def test_a_name_in_and_outside_of_graphs_is_judged_by_what_is_more() -> None:
    replays = series(12, captured=True, gpu_us=90.0)
    assert words(replays + series(1, **LAUNCH_BOUND)) == (
        "captured: 90 us a replay; without 1 sample outside of graphs"
    )
    mixed = words(replays + series(12, **GPU_BOUND))
    assert mixed == (
        "GPU-bound: 9.8 ms of GPU time, enqueued in 300 us; without 12 replays of graphs"
    )


def test_times_that_vary() -> None:
    steady = series(20, **GPU_BOUND)
    samples = [replace(s, gpu_us=30_000.0) if n % 5 == 0 else s for n, s in enumerate(steady)]
    assert words(samples).endswith("; varies: p90 is 3.1 times the median")


def test_a_verdict_needs_a_sample() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        verdict([])


@given(st.floats(0, 1e12))
def test_durations_have_three_digits(us: float) -> None:
    number, unit = duration(us).split()
    scale = {"us": 1.0, "ms": 1e3, "s": 1e6}[unit]
    assert float(number) * scale == pytest.approx(us, rel=0.005)
    assert unit == "s" or float(number) < 1000


def test_durations_at_the_ends_of_units() -> None:
    assert [duration(us) for us in (0.05, 7.42, 999.0, 999.7, 1000.0, 999.6e3, 2.5e6)] == [
        "0.05 us",
        "7.42 us",
        "999 us",
        "1 ms",
        "1 ms",
        "1 s",
        "2.5 s",
    ]
