"""How contenders are run side by side: scripted samples on a clock of their own."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from scripted_probe import Clock, ScriptedProbe
from syncfree.benchmarking.engine import BURST, PLAIN_SAMPLES, Plan, run
from syncfree.timing.nvml import Reading


@pytest.fixture
def clock() -> Clock:
    return Clock()


def noise(middle: float, share: float, seed: int = 3) -> Callable[[int], float]:
    draw = random.Random(seed)
    return lambda n: draw.gauss(middle, share * middle)


def test_a_ramp_is_warm_up_and_not_measured(clock: Clock) -> None:
    """5 ms calls that come down to 3 ms within 300 calls, as a clock that ramps."""
    jitter = noise(0.0, 1.0)
    script = lambda n: 3000.0 + 2000.0 * max(0.0, 1 - n / 300) + jitter(n)  # noqa: E731
    found = run({"f": ScriptedProbe(clock, script)}, Plan(), clock)["f"]
    assert len(found.warm_up) > 300
    assert [each.us for each in found.sifted.kept] == pytest.approx([3000] * 10, rel=0.02)
    assert not found.notes


def test_a_clock_that_ramps_while_times_stand_still_is_warm_up(clock: Clock) -> None:
    probe = ScriptedProbe(clock, lambda n: 1000.0, mhz=lambda n: min(1980.0, 1000.0 + 2 * n))
    found = run({"f": probe}, Plan(), clock)["f"]
    assert len(found.warm_up) > 490
    assert {each.megahertz for each in found.sifted.kept} == {1980.0}


def test_a_warm_up_that_never_settles_ends_and_says_so(clock: Clock) -> None:
    found = run({"f": ScriptedProbe(clock, lambda n: 1000.0 * 1.01**n)}, Plan(max_seconds=4), clock)
    (note,) = found["f"].notes
    assert note.startswith("the warm-up ended at its limit of 2 s with a drift of +")


def test_too_slow_for_a_warm_up(clock: Clock) -> None:
    found = run({"f": ScriptedProbe(clock, lambda n: 3e6)}, Plan(max_seconds=2), clock)["f"]
    assert "too few calls to tell" in found.notes[0]
    assert found.stopped == "time limit"
    assert len(found.samples) == 1


def test_noise_is_averaged_until_the_precision_asked_for(clock: Clock) -> None:
    counts = {}
    for precision in (0.05, 0.01, 0.005):
        probe = ScriptedProbe(clock, noise(100.0, 0.05))
        found = run({"f": probe}, Plan(precision=precision), clock)["f"]
        assert found.stopped == "precision"
        counts[precision] = len(found.samples)
    # The interval narrows with the root of the count.
    assert counts[0.05] < counts[0.01] < counts[0.005]
    assert counts[0.005] > 2 * counts[0.01] > 10 * counts[0.05] / 2


def test_the_time_limit_ends_a_noisy_run(clock: Clock) -> None:
    probe = ScriptedProbe(clock, noise(10_000.0, 0.4))
    begin = clock.seconds
    found = run({"f": probe}, Plan(precision=0.001, max_seconds=2), clock)["f"]
    assert found.stopped == "time limit"
    assert clock.seconds - begin < 3 + 1.5 * 2 + 0.5


def test_contenders_take_turns_and_the_first_place_goes_round(clock: Clock) -> None:
    log: list[str] = []
    probes = {
        name: ScriptedProbe(clock, lambda n: 1000.0, name=name, log=log, why_not="cpu")
        for name in "abc"
    }
    found = run(probes, Plan(), clock)
    counts = {name: len(each.samples) for name, each in found.items()}
    assert len(set(counts.values())) == 1
    measured = "".join(log).replace(" plain", "")[-3 * counts["a"] :]
    assert measured.startswith("abcbcacab")


def test_nobody_stops_before_the_noisiest(clock: Clock) -> None:
    """Or the early one would have met other surroundings."""
    probes = {
        "calm": ScriptedProbe(clock, lambda n: 100.0),
        "noisy": ScriptedProbe(clock, noise(100.0, 0.05)),
    }
    found = run(probes, Plan(), clock)
    assert len(found["calm"].samples) == len(found["noisy"].samples) > 50


def test_a_common_drift_cancels_in_the_ratio(clock: Clock) -> None:
    """Both get slower meanwhile; one after the other, the second would look 20 % worse."""
    slower = lambda n: 100.0 * (1 + 0.2 * min(n, 4000) / 4000)  # noqa: E731
    probes = {name: ScriptedProbe(clock, slower) for name in "ab"}
    found = run(probes, Plan(precision=0.0001, max_seconds=0.2), clock)
    a, b = ([each.us for each in found[name].sifted.kept] for name in "ab")
    assert a == b


def test_gated_samples_have_plain_ones_beside(clock: Clock) -> None:
    log: list[str] = []
    found = run({"f": ScriptedProbe(clock, lambda n: 50.0, log=log)}, Plan(), clock)["f"]
    assert found.gated
    assert len(found.plain) == PLAIN_SAMPLES
    assert log[-PLAIN_SAMPLES:] == [" plain"] * PLAIN_SAMPLES
    assert " plain" not in log[:-PLAIN_SAMPLES]


@pytest.mark.parametrize("plan", [Plan(gate=False), Plan()])
def test_without_a_gate(clock: Clock, plan: Plan) -> None:
    probe = ScriptedProbe(clock, lambda n: 50.0, why_not="waits at line 7")
    found = run({"f": probe}, plan, clock)["f"]
    assert not found.gated
    assert not found.plain
    assert found.not_gateable == ("waits at line 7" if plan.gate else "")
    assert set(probe.log) == {" plain"}


def test_a_pause_before_each_sample_of_an_idle_gap(clock: Clock) -> None:
    probe = ScriptedProbe(clock, lambda n: 50.0)
    found = run({"f": probe}, Plan("idle_gap", gap=0.25), clock)["f"]
    count = len(found.samples)
    assert probe.pauses[-count:] == [0.25] * count
    assert set(probe.pauses[:-count]) == {0.0}
    assert not found.plain


def test_a_pause_before_each_burst_whose_first_call_does_not_count(clock: Clock) -> None:
    probe = ScriptedProbe(clock, noise(50.0, 0.02))
    found = run({"f": probe}, Plan("burst", gap=0.05, gate=False), clock)["f"]
    paused = [n for n, pause in enumerate(probe.pauses) if pause]
    assert len(paused) >= 2
    assert {b - a for a, b in pairwise(paused)} == {BURST + 1}
    assert len(found.samples) == probe.count - len(found.warm_up) - len(paused)


def test_readings_are_attached_and_first_calls_timed(clock: Clock) -> None:
    reading = Reading(1980.0, 300.0, 40.0)
    probe = ScriptedProbe(clock, lambda n: 50.0)
    found = run({"f": probe}, Plan(), clock, lambda: reading)["f"]
    assert all(each.reading is reading for each in found.samples)
    assert found.first_call_s == pytest.approx(3.0)
    assert found.extra_bytes == 64
