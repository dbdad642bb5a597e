"""Loops count at the host's full speed, and seek a core that has it."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import pytest
import torch

from scripted_probe import Clock, ScriptedProbe
from syncfree.benchmarking import host_speed
from syncfree.benchmarking.api import measure
from syncfree.benchmarking.backend import Work
from syncfree.benchmarking.cpu import CpuBackend
from syncfree.benchmarking.engine import LOOPS, MOST_LOOPS, Plan, Run, run
from syncfree.benchmarking.host_speed import HostSpeed
from syncfree.benchmarking.samples import Loop


@pytest.fixture
def clock() -> Clock:
    return Clock()


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
