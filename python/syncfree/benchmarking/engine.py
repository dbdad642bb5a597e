"""Measures contenders in turn: warm-up, interleaved samples, stop. Uses no device and no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from syncfree.benchmarking.backend import Clock, Probe
from syncfree.benchmarking.host_speed import HostSpeed
from syncfree.benchmarking.rules import Mode, Sifted, drift, is_precise, is_settled, sift
from syncfree.benchmarking.samples import Loop, Sample
from syncfree.timing.nvml import Reading
from syncfree.timing.statistics import median

BURST = 8  # samples between two pauses
PLAIN_SAMPLES = 11
LOOPS = 5
LOOP_CALLS = 4  # the least number of calls in a loop
MOST_LOOPS = 60  # while the host does not run at its full speed
LOOP_SHARE = 0.5  # of the time limit
WARM_UP_SHARE = 0.5  # of the time limit
PREPARING_SHARE = 0.25  # of the time limit; it is part of the warm-up's share
NO_TIME_FOR_LOOPS = "a call takes too long for the time limit"
LEAST_WARM_UP_S = 0.1  # clocks ramp over tens of milliseconds: a shorter warm-up sees no drift
GAP_OF_MODE: dict[Mode, float] = {"steady": 0.0, "burst": 0.05, "idle_gap": 1.0}


@dataclass(frozen=True)
class Plan:
    """How to measure.

    Args:
        mode: Whether there are no pauses, one before every few samples, or one before each sample.
        gap: Length of a pause in seconds.
        gate: Whether to hide the host's launch time if the function allows it.
        precision: Half-width of the median's 95 % interval at which to stop, as a share of the
            median.
        max_seconds: Longest time for the samples of each contender.
    """

    mode: Mode = "steady"
    gap: float = 0.0
    gate: bool = True
    precision: float = 0.01
    max_seconds: float = 10.0


@dataclass
class Run:
    """The measurements of one contender.

    Args:
        probe: Took the samples.
        gated: Whether the samples are gated.
        not_gateable: Why they are not, although a gate was requested.
        samples: All samples, in order.
        sifted: The samples that count.
        plain: Plain samples, taken besides gated ones.
        loops: Loops, only those at the host's full speed if there are any.
        no_loop: Why there are no loops, or why only their host time is known.
        warm_up: Samples of the warm-up.
        first_call_s: Duration of the first calls, with loading and compilation.
        stopped: Why there are no more samples.
        notes: What a reader must know.
        extra_bytes: Peak memory of one call; None if it is unknown.
    """

    probe: Probe
    gated: bool = False
    not_gateable: str = ""
    samples: list[Sample] = field(default_factory=list)
    sifted: Sifted = field(default_factory=lambda: Sifted([]))
    plain: list[Sample] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    no_loop: str = ""
    warm_up: list[Sample] = field(default_factory=list)
    first_call_s: float = 0.0
    stopped: str = ""
    notes: list[str] = field(default_factory=list)
    extra_bytes: int | None = None


def run(
    probes: Mapping[str, Probe],
    plan: Plan,
    clock: Clock,
    reading: Callable[[], Reading | None] = lambda: None,
    host: HostSpeed | None = None,
) -> dict[str, Run]:
    """Measures all contenders in one run, in turn, so that each meets the same conditions.

    Args:
        probes: The probe of each contender, by its name.
        plan: How to measure.
        clock: For the time limit and the pauses.
        reading: Returns the newest reading of NVML.
        host: How fast the host ran so far.

    Returns:
        The measurements, by the contender's name.
    """
    runs = {name: Run(probe) for name, probe in probes.items()}
    spent = 0.0
    for each in runs.values():
        begin = clock.now()
        spent += each.probe.prepare(PREPARING_SHARE * plan.max_seconds)
        each.first_call_s = clock.now() - begin
        if plan.gate:
            each.not_gateable = each.probe.why_not_gateable()
            each.gated = not each.not_gateable

    def take(each: Run, *, gated: bool, pause: float = 0.0) -> Sample:
        return replace(each.probe.sample(gated=gated, pause=pause), reading=reading())

    host = host or HostSpeed(clock.now)
    host.seconds()
    warm_up(runs, plan, clock, take, spent)
    _measure(runs, plan, clock, take, host)
    for each in runs.values():
        if each.gated and plan.mode != "idle_gap":
            count = max(1, _calls_within(plan, each, PLAIN_SAMPLES))
            each.plain = [take(each, gated=False) for _ in range(count)]
    if plan.mode == "steady":
        _loop(runs, plan, clock, host)
    else:
        for each in runs.values():
            each.no_loop = f"mode {plan.mode!r} pauses between calls"
    for each in runs.values():
        if _calls_within(plan, each, 1):
            each.extra_bytes = each.probe.extra_bytes()
    return runs


def warm_up(
    runs: Mapping[str, Run],
    plan: Plan,
    clock: Clock,
    take: Callable[..., Sample],
    spent: float = 0.0,
) -> None:
    """Takes samples until neither times nor clocks drift any more, or the limit is reached.

    Args:
        runs: The contenders' runs, which get the samples and a note if the limit was reached.
        plan: Has the time limit.
        clock: For the time limit.
        take: Takes a sample of a run.
        spent: Seconds of the limit that earlier calls took; slow calls may have used it up.
    """
    limit = WARM_UP_SHARE * plan.max_seconds * len(runs)
    begin, look_at, turn = clock.now(), 1, 0
    while spent < limit:
        turn += 1
        for each in runs.values():
            each.warm_up.append(take(each, gated=each.gated))
        elapsed = clock.now() - begin
        if spent + elapsed >= limit:
            break
        if turn >= look_at:
            look_at = _next_look(turn)
            if elapsed >= LEAST_WARM_UP_S and all(is_settled(e.warm_up) for e in runs.values()):
                break
    for each in runs.values():
        if not is_settled(each.warm_up):
            change = drift(each.warm_up)
            still = "too few calls to tell" if change is None else f"a drift of {change:+.1%}"
            each.notes.append(f"the warm-up ended at its limit of {limit:.3g} s with {still}")


def _measure(
    runs: Mapping[str, Run],
    plan: Plan,
    clock: Clock,
    take: Callable[..., Sample],
    host: HostSpeed,
) -> None:
    end = clock.now() + plan.max_seconds * len(runs)
    names = list(runs)
    look_at, turn = 1, 0
    while True:
        # The order rotates, so that no contender always runs first.
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            each = runs[name]
            if plan.mode == "burst" and turn % BURST == 0:
                # Discarded: the first call after a pause is what the mode "idle_gap" measures.
                take(each, gated=each.gated, pause=plan.gap)
            pause = plan.gap if plan.mode == "idle_gap" else 0.0
            each.samples.append(take(each, gated=each.gated, pause=pause))
        turn += 1
        late = clock.now() >= end
        if turn < look_at and not late:
            continue
        look_at = _next_look(turn)
        host.seconds()
        done = {name: _look(each, plan) for name, each in runs.items()}
        # All stop together: a contender that stopped earlier would have met other conditions.
        if all(done.values()) or late:
            for name, each in runs.items():
                each.stopped = "precision" if done[name] else "time limit"
            return


def _calls_within(plan: Plan, each: Run, most: int) -> int:
    """How many of `most` further calls fit into the time limit: all, unless calls are slow.

    These calls are for secondary figures, which must not take minutes if the limit is seconds.
    """
    seconds = median([sample.seconds for sample in each.sifted.kept])
    return most if most * seconds <= plan.max_seconds else int(plan.max_seconds / seconds)


def _loop(runs: Mapping[str, Run], plan: Plan, clock: Clock, host: HostSpeed) -> None:
    most = {}
    for name, each in runs.items():
        each.no_loop = each.probe.why_no_loop()
        most[name] = _calls_within(plan, each, LOOPS * LOOP_CALLS) // LOOP_CALLS
        if not most[name]:
            each.no_loop = each.no_loop or NO_TIME_FOR_LOOPS
    taken: dict[str, list[tuple[float, Loop]]] = {name: [] for name in runs}
    end = clock.now() + LOOP_SHARE * plan.max_seconds * len(runs)
    for turn in range(MOST_LOOPS):
        for name, each in runs.items():
            if turn >= most[name] and len(taken[name]) < LOOPS:
                continue  # too slow for more
            before = host.seek()
            if found := each.probe.loop():
                taken[name].append((max(before, host.seconds()), found))
        if turn + 1 >= LOOPS and (clock.now() >= end or _are_enough(taken, host)):
            break
    for name, each in runs.items():
        kept = [loop for seconds, loop in taken[name] if host.is_full(seconds)]
        each.loops = kept or [loop for _, loop in taken[name]]
        slow = [seconds for seconds, _ in taken[name] if not host.is_full(seconds)]
        if len(kept) < min(LOOPS, len(taken[name])):
            what = "do not count" if kept else "count though"
            each.notes.append(
                f"{len(slow)} of {len(taken[name])} loops {what}: the host's processor ran up to "
                f"{max(slow) / host.fastest:.1f} times slower than at others"
            )


def _are_enough(taken: Mapping[str, list[tuple[float, Loop]]], host: HostSpeed) -> bool:
    """Whether every contender has enough loops that were taken at the host's full speed."""
    return all(
        len(each) < LOOPS or sum(host.is_full(seconds) for seconds, _ in each) >= LOOPS
        for each in taken.values()
    )


def _next_look(turn: int) -> int:
    """The turn of the next look at the samples: sorting at each turn would outweigh short calls."""
    return max(turn + 1, math.ceil(1.1 * turn))


def _look(each: Run, plan: Plan) -> bool:
    each.sifted = sift(each.samples, plan.mode)
    return is_precise([sample.us for sample in each.sifted.kept], plan.precision)
