"""Robust statistics of timing samples, in plain Python.

Times of computers have long upper tails: an interrupt, a clock that ramps, another process. So all
of this uses order statistics and assumes no distribution.
"""

from __future__ import annotations

import math
from collections.abc import Iterable


def median(samples: Iterable[float]) -> float:
    """The middle sample, or the mean of the middle two.

    Args:
        samples: At least one, in any order, none of them NaN.

    Returns:
        The median, in the samples' unit.

    Raises:
        ValueError: There is no sample, or one is NaN.

    Example:
        >>> median([3.0, 1.0, 200.0])
        3.0
    """
    return _quantile(_ordered(samples), 0.5)


def median_of_known(samples: Iterable[float | None]) -> float | None:
    """The median of the samples that are not None; None if there is none.

    Args:
        samples: In any order, none of them NaN.

    Returns:
        The median, in the samples' unit.

    Raises:
        ValueError: One is NaN.

    Example:
        >>> median_of_known([3.0, None, 1.0, 200.0]), median_of_known([None])
        (3.0, None)
    """
    known = [sample for sample in samples if sample is not None]
    return median(known) if known else None


def quantile(samples: Iterable[float], q: float) -> float:
    """The value below which the share ``q`` of the samples lies, linear between two samples.

    Definition 7 of Hyndman and Fan, "Sample quantiles in statistical packages" (1996), which is
    also the default of NumPy and R.

    Args:
        samples: At least one, in any order, none of them NaN.
        q: From 0 (the smallest sample) to 1 (the largest).

    Returns:
        The quantile, in the samples' unit.

    Raises:
        ValueError: There is no sample, one is NaN, or ``q`` is outside of 0 to 1.

    Example:
        >>> quantile([1.0, 2.0, 3.0, 4.0, 5.0], 0.9)
        4.6
    """
    if not 0 <= q <= 1:
        raise ValueError(f"q must be from 0 to 1, but got {q}")
    return _quantile(_ordered(samples), q)


def quantiles(samples: Iterable[float], qs: Iterable[float]) -> list[float]:
    """Several quantiles with the samples sorted once; see :func:`quantile`.

    Example:
        >>> quantiles([4.0, 1.0, 3.0, 2.0, 5.0], [0.0, 0.5, 1.0])
        [1.0, 3.0, 5.0]
    """
    wanted = list(qs)
    for q in wanted:
        if not 0 <= q <= 1:
            raise ValueError(f"q must be from 0 to 1, but got {q}")
    ordered = _ordered(samples)
    return [_quantile(ordered, q) for q in wanted]


def mad(samples: Iterable[float]) -> float:
    """The median absolute deviation from the median: how far off a typical sample is.

    Not scaled: for normal samples it is 0.6745 standard deviations.

    Args:
        samples: At least one, in any order, none of them NaN.

    Returns:
        The deviation, in the samples' unit; 0 for a single sample.

    Raises:
        ValueError: There is no sample, or one is NaN.

    Example:
        >>> mad([1.0, 2.0, 3.0, 4.0, 1000.0])
        1.0
    """
    ordered = _ordered(samples)
    middle = _quantile(ordered, 0.5)
    # A sample equal to an infinite median deviates by 0; the difference would be NaN.
    return median(abs(x - middle) if x != middle else 0.0 for x in ordered)


def median_interval(samples: Iterable[float], confidence: float = 0.95) -> tuple[float, float]:
    """An interval that covers the true median with at least the given confidence.

    Distribution-free: for any distribution, a sample is below its median with probability 1/2, so
    the number of samples below it is binomial. The interval runs from the k-th smallest to the k-th
    largest sample, with the largest k for which P(fewer than k below) is at most
    ``(1 - confidence) / 2``. See David and Nagaraja, "Order Statistics" (2003), section 7.1.

    Args:
        samples: At least one, independent of each other, in any order, none of them NaN.
        confidence: Above 0 and below 1.

    Returns:
        The ends of the interval; infinite if there are too few samples for the confidence. 95 %
        needs six.

    Raises:
        ValueError: There is no sample, one is NaN, or ``confidence`` is out of range.

    Example:
        >>> median_interval(range(1, 11))
        (2, 9)
        >>> median_interval([1.0, 2.0])
        (-inf, inf)
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be above 0 and below 1, but got {confidence}")
    ordered = _ordered(samples)
    k = _rank_of_interval(len(ordered), (1 - confidence) / 2)
    return (ordered[k - 1], ordered[-k]) if k else (-math.inf, math.inf)


def _rank_of_interval(count: int, tail: float) -> int:
    """The largest k for which P(fewer than k of ``count`` fair coins show heads) <= tail."""
    # In logarithms, because 0.5 ** count is 0 from 1075 samples on.
    log_half = -count * math.log(2)
    log_factorial = math.lgamma(count + 1)
    below, k = 0.0, 0
    while k <= count // 2:
        chance = log_factorial - math.lgamma(k + 1) - math.lgamma(count - k + 1) + log_half
        below += math.exp(chance)
        # The sum of binary fractions is compared with a decimal one, so allow for rounding.
        if below > tail * (1 + 1e-12):
            break
        k += 1
    return k


def _ordered(samples: Iterable[float]) -> list[float]:
    ordered = sorted(samples)
    if not ordered:
        raise ValueError("at least one sample is needed, but there is none")
    if any(map(math.isnan, ordered)):
        raise ValueError("the samples must be numbers, but one is NaN")
    return ordered


def _quantile(ordered: list[float], q: float) -> float:
    place = q * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    low, high = ordered[below], ordered[above]
    part = place - below
    # Also correct if both are infinite, and never outside of the two.
    return low if part == 0 or low == high else low + part * (high - low)
