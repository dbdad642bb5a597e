"""How contenders are run side by side: scripted samples on a clock of their own."""

from __future__ import annotations

import math
import os
import random
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from syncfree.benchmarking import host_speed
from syncfree.benchmarking.api import measure
from syncfree.benchmarking.backend import Work
from syncfree.benchmarking.cpu import CpuBackend
from syncfree.benchmarking.engine import BURST, LOOPS, MOST_LOOPS, PLAIN_SAMPLES, Plan, Run, run
from syncfree.benchmarking.host_speed import HostSpeed
from syncfree.benchmarking.samples import Loop, Sample
from syncfree.timing.nvml import Reading


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class ScriptedProbe:
    """The n-th sample takes ``script(n)`` microseconds; the log tells who was called and how."""

    def __init__(
        self,
        clock: Clock,
        script: Callable[[int], float],
        *,
        name: str = "",
        log: list[str] | None = None,
        why_not: str = "",
        mhz: Callable[[int], float | None] = lambda n: None,
    ) -> None:
        self._clock, self._script, self._mhz = clock, script, mhz
        self._name, self._why_not = name, why_not
        self.log: list[str] = [] if log is None else log
        self.pauses: list[float] = []
        self.count = 0

    def prepare(self, limit: float) -> float:
        self._clock.seconds += 3.0  # compilation
        return 0.0

    def why_not_gateable(self) -> str:
        return self._why_not

    def sample(self, *, gated: bool, pause: float = 0.0) -> Sample:
        us = self._script(self.count)
        self._clock.seconds += us * 1e-6 + pause
        self.pauses.append(pause)
        self.log.append(self._name + ("" if gated else " plain"))
        self.count += 1
        return Sample(us, us / 10, self._mhz(self.count - 1))

    def why_no_loop(self) -> str:
        return ""

    def loop(self) -> Loop | None:
        return Loop(us=70.0, host_us=8.0)

    def extra_bytes(self) -> int | None:
        return 64


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


class Processor:
    """Of a host that is slow from its first loop on, for a while."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: Clock, slow_for: float) -> None:
        self.clock, self.slow_for = clock, slow_for
        self.first_loop = math.inf
        monkeypatch.setattr(host_speed, "_work_of_the_host", lambda: self.work(1e-4))
        monkeypatch.setattr(host_speed, "_other_cores", list)

    def work(self, seconds: float) -> float:
        since = self.clock.seconds - self.first_loop
        taken = seconds * (1.6 if 0.0 <= since < self.slow_for else 1.0)
        self.clock.seconds += taken
        return taken


class ProcessorProbe(ScriptedProbe):
    """Its loops take the host as long as its work does."""

    def __init__(self, processor: Processor) -> None:
        super().__init__(processor.clock, lambda n: 50.0)
        self._processor = processor

    def loop(self) -> Loop | None:
        self._processor.first_loop = min(self._processor.first_loop, self._clock.seconds)
        return Loop(us=70.0, host_us=self._processor.work(1e-2) * 1e3)


def two_on(processor: Processor, host: HostSpeed | None = None) -> list[Run]:
    probes = {name: ProcessorProbe(processor) for name in "ab"}
    return list(run(probes, Plan(max_seconds=1.0), processor.clock, host=host).values())


def test_loops_wait_for_the_hosts_full_speed(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Two contenders' ten loops, one behind the other, were all of a slow moment."""
    for each in two_on(Processor(monkeypatch, clock, slow_for=0.35)):
        assert len(each.loops) >= LOOPS
        assert {round(loop.host_us, 6) for loop in each.loops} == {10.0}
        assert each.notes == []  # there are as many as of a host of one speed


def test_few_loops_at_full_speed_say_so(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """The time for loops ends with the host's slow moment."""
    for each in two_on(Processor(monkeypatch, clock, slow_for=0.98)):
        assert 0 < len(each.loops) < LOOPS
        assert {round(loop.host_us, 6) for loop in each.loops} == {10.0}
        (note,) = each.notes
        assert note.endswith(
            "loops do not count: the host's processor ran up to 1.6 times slower than at others"
        )


def test_a_host_that_is_slow_from_the_first_is_known_from_work_before(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    processor = Processor(monkeypatch, clock, slow_for=math.inf)
    host = HostSpeed(clock.now)
    host.seconds()
    processor.first_loop = clock.now()  # slow for all that this workload does
    for each in two_on(processor, host):
        (note,) = each.notes
        assert f"of {len(each.loops)} loops count though: " in note


def test_workloads_on_all_devices_know_the_hosts_speed_from_each_other() -> None:
    first, second = CpuBackend(), CpuBackend()
    assert first.host is second.host
    plan = Plan(max_seconds=0.02)
    measure({"f": Work(lambda: None)}, plan, first, torch.device("cpu"))
    assert 0.0 < second.host.fastest < math.inf


def test_a_speed_that_nothing_sustains_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    taken = iter([1.0] * 3 + [2.0] * 6)
    monkeypatch.setattr(host_speed, "_work_of_the_host", lambda: clock.sleep(next(taken)))
    host = HostSpeed(clock.now)
    host.seconds()
    assert not host.is_full(host.seconds())
    clock.sleep(host_speed.REMEMBERED_S)
    assert host.is_full(host.seconds())
    assert host.fastest == 2.0


class Cores:
    """Of which some are slow; the thread begins on the first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: Clock, slow: set[int]) -> None:
        self.at, self.slow, self.clock, self.moves = 0, slow, clock, 0
        monkeypatch.setattr(host_speed, "_work_of_the_host", lambda: self.work(1e-4))
        monkeypatch.setattr(host_speed, "_other_cores", lambda: [1, 2, 3])
        monkeypatch.setattr(host_speed, "_move_to", self.move_to)

    def move_to(self, core: int) -> None:
        self.at = core
        self.moves += 1

    def work(self, seconds: float) -> float:
        taken = seconds * (1.9 + 0.01 * self.at if self.at in self.slow else 1.0)
        self.clock.seconds += taken
        return taken


def test_the_thread_moves_to_a_core_of_full_speed(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """A slow time is one of a core: waiting on it costs all loops, the next core none."""
    cores = Cores(monkeypatch, clock, slow=set())
    host = HostSpeed(clock.now)
    assert host.seek() == pytest.approx(1e-4)
    assert cores.moves == 0  # nothing to be gained
    cores.slow = {0, 1}
    assert host.seek() == pytest.approx(1e-4)
    assert (cores.at, cores.moves) == (2, 2)
    cores.at, cores.slow = 0, {0, 1, 2, 3}
    assert host.seek() == pytest.approx(1.91e-4)
    assert cores.at == 1  # the least slow of the others


def test_loops_run_on_a_core_of_full_speed(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """The thread's core is slow for all that a workload does, but not for those before it."""
    cores = Cores(monkeypatch, clock, slow=set())

    class OnCores(ScriptedProbe):
        def loop(self) -> Loop | None:
            return Loop(us=70.0, host_us=cores.work(1e-2) * 1e3)

    host = HostSpeed(clock.now)
    host.seconds()
    cores.slow = {0}
    probes = {name: OnCores(clock, lambda n: 50.0) for name in "ab"}
    for each in run(probes, Plan(max_seconds=1.0), clock, host=host).values():
        assert len(each.loops) == LOOPS
        assert {round(loop.host_us, 6) for loop in each.loops} == {10.0}
        assert each.notes == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="moves between cores on Linux")
def test_a_move_leaves_where_the_thread_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.sched_getaffinity(0)

    def core() -> int:  # proc_pid_stat(5); a name in parentheses may hold blanks
        return int(Path("/proc/thread-self/stat").read_text().rpartition(")")[2].split()[36])

    for other in host_speed._other_cores():
        assert other in before
        for _ in range(20):  # the system may move it again at once
            host_speed._move_to(other)
            if core() == other:
                break
        else:
            pytest.fail(f"not moved to core {other}")
        assert os.sched_getaffinity(0) == before
    host_speed._move_to(max(before) + 4096)  # as a core that was taken away meanwhile
    assert os.sched_getaffinity(0) == before

    pin = os.sched_setaffinity

    def interrupted(pid: int, cores: set[int]) -> None:
        pin(pid, cores)
        if len(cores) < len(before):
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "sched_setaffinity", interrupted)
    if len(before) > 1:
        with pytest.raises(KeyboardInterrupt):
            host_speed._move_to(min(before))
    assert os.sched_getaffinity(0) == before


def test_where_nobody_may_ask_for_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    for name in ("sched_getaffinity", "sched_setaffinity"):
        monkeypatch.setattr(os, name, refuse, raising=False)
    assert host_speed._other_cores() == []
    host_speed._move_to(0)


def test_loops_of_a_host_of_one_speed_are_few(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    for each in two_on(Processor(monkeypatch, clock, slow_for=0.0)):
        assert len(each.loops) == LOOPS
        assert each.notes == []


def test_loops_of_a_host_that_stays_slow_count_and_say_so(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    processor = Processor(monkeypatch, clock, slow_for=math.inf)
    for each in two_on(processor):
        assert LOOPS < len(each.loops) <= MOST_LOOPS
        (note,) = each.notes
        assert f"of {len(each.loops)} loops count though: " in note
    assert clock.now() < processor.first_loop + 1.1  # half of both time limits, and a turn
