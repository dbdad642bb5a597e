"""How SSIM's walks share the units of all strips: each unit belongs to one of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from share_functions import share_function

ROWS_OF_A_BEGINNING = 40
Begin = Callable[[int, int, int, int, int], int]


@pytest.fixture(scope="module")
def begin(tmp_path_factory: pytest.TempPathFactory) -> Begin:
    folder = tmp_path_factory.mktemp("shares")
    return share_function("strip_shares.cpp", "begin_of_share", "qqiqq", folder)


def shares(begin: Begin, strips: int, units: int, rows: int, walkers: int) -> list[range]:
    ends = [begin(strips * units, units, rows, w, walkers) for w in range(walkers + 1)]
    assert (ends[0], ends[-1]) == (0, strips * units)
    assert ends == sorted(ends)
    return [range(a, b) for a, b in itertools.pairwise(ends)]


# 1440 strips of 34 units are 32x3x1080x1920 on 132 multiprocessors.
@pytest.mark.parametrize("walkers", [1, 7, 32, 264, 1056])
@pytest.mark.parametrize("units", [1, 2, 34, 135, 1366])
@pytest.mark.parametrize("strips", [0, 1, 3, 360, 1440])
@pytest.mark.parametrize("rows", [8, 32])
def test_each_unit_is_walked_once(
    begin: Begin, strips: int, units: int, rows: int, walkers: int
) -> None:
    sizes = [len(share) for share in shares(begin, strips, units, rows, walkers)]
    total = strips * units
    assert sum(sizes) == total
    if total < 32 * walkers:
        assert max(sizes) - min(sizes) <= 1


def test_shares_take_the_same_time(begin: Begin) -> None:
    """With what a beginning costs, which a warp that walks through three strips has three times."""
    units, rows = 34, 32
    times = []
    for share in shares(begin, 1440, units, rows, 1056):
        beginnings = share[-1] // units - share[0] // units + 1
        times.append(rows * len(share) + ROWS_OF_A_BEGINNING * beginnings)
    assert max(times) <= sum(times) / len(times) + rows  # even shares: 1.6 units above the mean
