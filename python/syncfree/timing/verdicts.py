"""What the samples of a region mean: flags for each, and a sentence for all of them.

The flags use other data besides the GPU time: a slow region may be waiting for launches, running at
a low clock, or simply have much work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from syncfree.timing.samples import Sample
from syncfree.timing.statistics import median, median_of_known, quantile

LAUNCH_BOUND = 0.8
"""A region whose host time is above this share of its GPU time follows the host."""

LOW_CLOCK = 0.9
"""A clock below this share of the highest one seen on its GPU is low."""

COLD_GAP_US = 1e5
"""After a host gap this long the next launches are slow: cold caches and idle states."""

RAMP_GAP_US = 1e4
"""A low clock after a gap this long is ramping up; without such a gap it is held down."""

OFTEN = 0.5
"""A flag on more than this share of the samples becomes the region's verdict."""

VARIES = 2.0
"""A region whose p90 is this many times its median has no typical time."""


def highest_clocks(samples: Iterable[Sample]) -> dict[int, float]:
    """The highest effective clock of each device, in MHz.

    Example:
        >>> highest_clocks([Sample("a", mhz=1500.0), Sample("b", mhz=1980.0), Sample("c")])
        {0: 1980.0}
    """
    highest: dict[int, float] = {}
    for each in samples:
        if each.mhz is not None:
            highest[each.device] = max(highest.get(each.device, 0.0), each.mhz)
    return highest


def flagged(
    samples: Sequence[Sample],
    highest: Mapping[int, float] | None = None,
    around: Mapping[int, Sample] | None = None,
) -> tuple[Sample, ...]:
    """The samples of a region with their flags.

    ``first``: the first of its name, which includes loading and allocation. ``cold``: that, or the
    host reached it after a long gap. ``launch_bound``: the GPU waited for the host's launches in
    it, so its time is the host's. ``ramp``: the clock was low after a gap before the region or
    before one around it. ``throttled``: the clock was low without such a gap, held down by power,
    heat or a limit. If no gap is known, it is neither. ``captured``: a replay of a CUDA graph.

    A region in which the host takes as long as the GPU is launch-bound, unless the GPU had not even
    begun it when the host reached its end. In that case earlier work delayed both: the host can run
    ahead only so far, so the GPU slowed it down. Some samples are probed for this, and the answer
    is used for the following samples until the next probe.

    Args:
        samples: Samples of one name, in the order in which they began.
        highest: The highest clock of each device; default: that of these samples.
        around: Samples by their sequence, in which the parents of these samples are looked up.

    Example:
        >>> starved = Sample("step", gpu_us=530.0, host_enqueue_us=520.0, queued=False)
        >>> flagged([starved])[0].flags
        ('launch_bound',)
    """
    clocks = highest_clocks(samples) if highest is None else highest
    result, queued = [], False
    for each in samples:
        if each.queued is not None:
            queued = each.queued
        low = each.mhz is not None and each.mhz < LOW_CLOCK * clocks.get(each.device, each.mhz)
        gap = _largest_gap(each, around or {}) if low else None
        follows = (
            each.host_enqueue_us is not None
            and not each.host_clock
            and each.host_enqueue_us > LAUNCH_BOUND * each.gpu_us
        )
        found = {
            "cold": each.first or (each.host_gap_us or 0.0) >= COLD_GAP_US,
            "first": each.first,
            "launch_bound": follows and not queued,
            "ramp": gap is not None and gap >= RAMP_GAP_US,
            "throttled": gap is not None and gap < RAMP_GAP_US,
            "captured": each.captured,
        }
        result.append(replace(each, flags=tuple(name for name, holds in found.items() if holds)))
    return tuple(result)


def _largest_gap(sample: Sample, around: Mapping[int, Sample]) -> float | None:
    """The largest gap before a sample or its parents: the first region of a step begins with it."""
    here: Sample | None = sample
    gaps = []
    while here is not None:
        gaps += [gap for gap in (here.host_gap_us, here.gpu_gap_us) if gap is not None]
        here = around.get(here.parent) if here.parent else None
    return max(gaps, default=None)


def gpu_work_us(samples: Iterable[Sample]) -> float | None:
    """GPU time without the host's launches, from samples that were queued behind earlier work.

    All their launches were made before the GPU reached them, so none of their time is the host's.
    None if there is no such sample.

    Example:
        >>> gpu_work_us([Sample("a", gpu_us=530.0), Sample("a", gpu_us=90.0, queued=True)])
        90.0
    """
    return median_of_known(each.gpu_us for each in samples if each.queued)


def verdict(samples: Sequence[Sample]) -> str:
    """One sentence about a region: what its time consists of, and what to do about it.

    Args:
        samples: At least one sample of one name, with flags, in the order in which they began.

    Raises:
        ValueError: There is no sample.

    Example:
        >>> starved = Sample("step", gpu_us=530.0, host_enqueue_us=520.0)
        >>> print(verdict(flagged([starved])))
        launch-bound: host enqueue 520 us for 530 us between the events: capture ...
    """
    if not samples:
        raise ValueError("a verdict needs at least one sample, but there is none")
    judged, left_out = _of_one_kind(samples)
    only = " (of the first run alone)" if all(each.first for each in judged) else ""
    return f"{_time(judged)}{_clock(judged)}{_held_down(judged)}{_spread(judged)}{only}{left_out}"


def _of_one_kind(samples: Sequence[Sample]) -> tuple[Sequence[Sample], str]:
    """The replays of graphs or the other samples, whichever are more; and what was left out."""
    replays = [each for each in samples if each.captured]
    others = [each for each in samples if not each.captured]
    if not replays or not others:
        return samples, ""
    if len(replays) > len(others):
        return replays, f"; without {_counted(others, 'sample')} outside of graphs"
    return others, f"; without {_counted(replays, 'replay')} of graphs"


def _counted(samples: Sequence[Sample], noun: str) -> str:
    return f"{len(samples)} {noun}{'' if len(samples) == 1 else 's'}"


def _time(samples: Sequence[Sample]) -> str:
    gpu = median(each.gpu_us for each in samples)
    if samples[0].host_clock:
        return f"host time: {duration(gpu)} by the clock, without a GPU"
    if samples[0].kind != "compute":
        return f"{'to' if samples[0].kind == 'h2d' else 'from'} the GPU: {_rate(samples, gpu)}"
    enqueues = [each.host_enqueue_us for each in samples if each.host_enqueue_us is not None]
    if not enqueues:
        return f"captured: {duration(gpu)} a replay"
    enqueue = median(enqueues)
    if _share(samples, "launch_bound") > OFTEN:
        work = gpu_work_us(samples)
        of = f"{duration(gpu)} between the events"
        if work is not None:
            of = f"{duration(work)} of GPU work"
        return (
            f"launch-bound: host enqueue {duration(enqueue)} for {of}: capture a graph or fuse, "
            "or find what the host waits for (`syncfree syncs`)"
        )
    text = f"GPU-bound: {duration(gpu)} of GPU time, enqueued in {duration(enqueue)}"
    gaps = [each.gpu_gap_us for each in samples if each.gpu_gap_us is not None]
    if gaps and median(gaps) > OFTEN * gpu:
        text += f"; before it the GPU is idle or untimed for {duration(median(gaps))}"
    return text


def _rate(samples: Sequence[Sample], gpu: float) -> str:
    moved = [each.bytes / each.gpu_us for each in samples if each.bytes and each.gpu_us > 0]
    if not moved:
        return f"{duration(gpu)} a copy, of unknown size"
    return f"{duration(gpu)} a copy, {median(moved) / 1e3:.3g} GB/s"


def _clock(samples: Sequence[Sample]) -> str:
    stamped = [each for each in samples if each.mhz is not None]
    if not stamped:
        return ""
    clock = median(each.mhz for each in stamped if each.mhz is not None)
    if _share(stamped, "throttled") > OFTEN:
        return f"; throttled: {clock:.0f} MHz, though the GPU has run faster"
    if _share(stamped, "ramp") > OFTEN:
        return f"; the clock ramps: {clock:.0f} MHz after gaps, though the GPU has run faster"
    return ""


def _held_down(samples: Sequence[Sample]) -> str:
    """The reasons that, by NVML, held the clock down in most of the samples with a reading."""
    told = [each.throttle for each in samples if each.throttle is not None]
    counts = Counter(name for names in told for name in names)
    reasons = [name for name, count in counts.items() if count > OFTEN * len(told)]
    return f"; the clock is held down by {' and '.join(reasons)}" if reasons else ""


def _spread(samples: Sequence[Sample]) -> str:
    times = [each.gpu_us for each in samples]
    middle = median(times)
    high = quantile(times, 0.9)
    if len(times) >= 10 and middle > 0 and high > VARIES * middle:
        return f"; varies: p90 is {high / middle:.1f} times the median"
    return ""


def _share(samples: Sequence[Sample], flag: str) -> float:
    return sum(flag in each.flags for each in samples) / len(samples)


def duration(microseconds: float) -> str:
    """A time with three digits and its unit.

    Example:
        >>> duration(12.34), duration(4567.0), duration(2e6)
        ('12.3 us', '4.57 ms', '2 s')
    """
    for unit, scale in (("us", 1.0), ("ms", 1e3)):
        if abs(microseconds) < 999.5 * scale:
            return f"{microseconds / scale:.3g} {unit}"
    return f"{microseconds / 1e6:.3g} s"
