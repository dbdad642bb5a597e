"""Statistics of timings against NumPy, SciPy-free binomial sums and counted coverage."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncfree.timing import statistics

times = st.lists(st.floats(0, 1e9, allow_nan=False), min_size=1, max_size=60)


@given(times, st.floats(0, 1))
def test_quantiles_are_numpys(samples: list[float], q: float) -> None:
    expected = float(np.quantile(samples, q))
    assert statistics.quantile(samples, q) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert statistics.quantiles(samples, [q, 0.5]) == pytest.approx(
        [expected, float(np.median(samples))], rel=1e-9, abs=1e-9
    )


@given(times)
def test_median_and_mad_are_numpys(samples: list[float]) -> None:
    middle = float(np.median(samples))
    assert statistics.median(samples) == pytest.approx(middle, rel=1e-9, abs=1e-9)
    expected = float(np.median(np.abs(np.array(samples) - middle)))
    assert statistics.mad(samples) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(times)
def test_samples_stay_as_they_are(samples: list[float]) -> None:
    before = list(samples)
    statistics.median_interval(samples)
    statistics.mad(samples)
    assert samples == before


def exact_rank(count: int, tail: Fraction) -> int:
    below, k = Fraction(0), 0
    while k <= count // 2:
        below += Fraction(math.comb(count, k), 2**count)
        if below > tail:
            break
        k += 1
    return k


@pytest.mark.parametrize("percent", [50, 68, 90, 95, 99])
def test_interval_has_the_exact_binomial_rank(percent: int) -> None:
    for count in [*range(1, 80), 200, 1000, 3000]:
        samples = list(range(count))
        k = exact_rank(count, Fraction(100 - percent, 200))
        expected = (k - 1, count - k) if k else (-math.inf, math.inf)
        assert statistics.median_interval(samples, percent / 100) == expected, count


def test_interval_covers_the_median_of_every_distribution() -> None:
    """Counted over all 2^8 ways in which eight samples lie around the median."""
    low, high = statistics.median_interval(range(8))
    missed = 0
    for signs in product([-1, 1], repeat=8):
        ordered = sorted(sign * size for size, sign in enumerate(signs, start=1))
        missed += not ordered[int(low)] <= 0 <= ordered[int(high)]
    assert missed / 2**8 <= 0.05


def test_interval_covers_the_median_of_a_skewed_one() -> None:
    source = random.Random(7)
    rounds, covered = 2000, 0
    for _ in range(rounds):
        low, high = statistics.median_interval(source.expovariate(1) for _ in range(25))
        covered += low <= math.log(2) <= high
    assert covered / rounds > 0.94  # exactly 0.957; 0.94 is four standard deviations below


def test_one_sample() -> None:
    assert statistics.median([7.0]) == statistics.quantile([7.0], 0.99) == 7.0
    assert statistics.mad([7.0]) == 0.0
    assert statistics.median_interval([7.0]) == (-math.inf, math.inf)


def test_infinite_samples() -> None:
    assert statistics.median([1.0, math.inf, math.inf]) == math.inf
    assert statistics.mad([1.0, math.inf, math.inf]) == 0.0


@pytest.mark.parametrize("function", ["median", "mad", "median_interval"])
@pytest.mark.parametrize(
    ("samples", "message"), [([], "none"), ([1.0, math.nan], "one is NaN"), ([math.nan], "NaN")]
)
def test_bad_samples(function: str, samples: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(statistics, function)(samples)


@pytest.mark.parametrize("q", [-0.1, 1.1, math.nan])
def test_bad_quantile(q: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1, but got"):
        statistics.quantile([1.0], q)
    with pytest.raises(ValueError, match="from 0 to 1, but got"):
        statistics.quantiles([1.0], [0.5, q])


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, math.nan])
def test_bad_confidence(confidence: float) -> None:
    with pytest.raises(ValueError, match="above 0 and below 1, but got"):
        statistics.median_interval([1.0], confidence)
