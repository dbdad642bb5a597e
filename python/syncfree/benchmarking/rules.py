"""When a warm-up has settled, which samples count, and when they are enough. Uses no torch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from syncfree.benchmarking.samples import Sample
from syncfree.timing.nvml import FAULTS, reasons_in_words
from syncfree.timing.statistics import mad, median, median_interval

Mode = Literal["steady", "burst", "idle_gap"]

LEAST_WINDOW = 8
DRIFT = 0.01
# For a call of 100 microseconds, stamps give the clock to about 3 %.
CLOCK_SPREAD = 0.03
LOW_CLOCK = 0.9
LEAST_SAMPLES = 10
CONFIDENCE = 0.95


def drift(samples: Sequence[Sample]) -> float | None:
    """Relative change of the median from the third quarter of the samples to the last one.

    Quarters, because windows of a fixed length would not see a slow ramp.

    Returns:
        None if there are too few samples; 0 if the change is within the noise of the medians.
    """
    width = _window(samples)
    if len(samples) < 2 * width:
        return None
    before = [each.us for each in samples[-2 * width : -width]]
    after = [each.us for each in samples[-width:]]
    change = median(after) - median(before)
    # Standard error of a median of n normal values: 1.2533 sigma / sqrt(n), sigma = 1.4826 MAD.
    noise = 1.2533 * 1.4826 * math.hypot(mad(before), mad(after)) / math.sqrt(width)
    if abs(change) <= 2 * noise:
        return 0.0
    return change / median(before) if median(before) else math.inf


def clock_spread(samples: Sequence[Sample]) -> float | None:
    """Relative spread of the clock over the last half; None if too few clocks are known."""
    width = _window(samples)
    known = sorted(mhz for mhz in map(_clock, samples[-2 * width :]) if mhz is not None)
    if len(known) < width:
        return None
    # Between quartiles, because a single stamp may be wrong.
    low, high = known[len(known) // 4], known[-1 - len(known) // 4]
    return (high - low) / high


def _window(samples: Sequence[Sample]) -> int:
    return max(LEAST_WINDOW, len(samples) // 4)


def is_settled(samples: Sequence[Sample]) -> bool:
    """Whether neither the time nor the clock of a warm-up moves any more."""
    change, spread = drift(samples), clock_spread(samples)
    return change is not None and abs(change) < DRIFT and (spread is None or spread < CLOCK_SPREAD)


def interval_of(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the median; None if there are too few samples."""
    low, high = median_interval(values, CONFIDENCE)
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def is_precise(values: Sequence[float], precision: float) -> bool:
    """Whether the 95 % interval of the median lies within `precision` of the median."""
    if len(values) < LEAST_SAMPLES:
        return False
    low, high = median_interval(values, CONFIDENCE)
    middle = median(values)
    return max(high - middle, middle - low) <= precision * middle


@dataclass
class Sifted:
    """Samples that count, and why others do not.

    Args:
        kept: The samples that count.
        discards: How many do not, by reason.
        notes: What a reader must know about those that count.
    """

    kept: list[Sample]
    discards: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)


def sift(samples: Sequence[Sample], mode: Mode) -> Sifted:
    """Leaves out samples that say nothing about the function, but never most of them.

    A sample with a problem of its own does not count, unless all have one. An external reason
    (hardware slow-down, low clock) that holds for more than half of the rest is not an exception
    but the state of this machine: those samples are kept, and a note says so.
    """
    found = Sifted([])
    for each in samples:
        if each.problem:
            found.discards[each.problem] += 1
        else:
            found.kept.append(each)
    if samples and not found.kept:
        found.notes.append(f"no sample without a problem ({', '.join(found.discards)}): all kept")
        return Sifted(list(samples), Counter(), found.notes)
    highest = max((mhz for mhz in map(_clock, found.kept) if mhz is not None), default=None)
    blames = [_blame(each, highest, mode) for each in found.kept]
    for reason in sorted({blame for blame in blames if blame}):
        count = blames.count(reason)
        if 2 * count > len(blames):
            found.notes.append(f"{count} of {len(blames)} samples with {reason}: all kept")
            blames = ["" if blame == reason else blame for blame in blames]
    # Several reasons together may hold for most samples too.
    if 2 * sum(map(bool, blames)) > len(blames):
        found.notes.append(
            f"most samples with {' or '.join(sorted(set(filter(None, blames))))}: all kept"
        )
        return found
    found.discards.update(blame for blame in blames if blame)
    found.kept = [each for each, blame in zip(found.kept, blames, strict=True) if not blame]
    return found


def _blame(sample: Sample, highest: float | None, mode: Mode) -> str:
    faults = sample.reading.reasons & FAULTS if sample.reading is not None else 0
    if faults:
        return " and ".join(reasons_in_words(faults))
    mhz = _clock(sample)
    # After an idle gap, a low clock is a part of what is measured.
    if mode != "idle_gap" and mhz is not None and highest is not None and mhz < LOW_CLOCK * highest:
        return f"a clock below {LOW_CLOCK:.0%} of the highest seen"
    return ""


def _clock(sample: Sample) -> float | None:
    if sample.megahertz is not None:
        return sample.megahertz
    return None if sample.reading is None else sample.reading.megahertz
