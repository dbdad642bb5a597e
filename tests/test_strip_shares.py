"""How SSIM's walks share the units of all strips: each unit belongs to one of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest

from share_functions import share_function

ROWS_OF_A_BEGINNING = 40
Begin = Callable[[int, int, int, int, int], int]
RowsOfUnit = Callable[[int, int, int], int]


@pytest.fixture(scope="module")
def begin(tmp_path_factory: pytest.TempPathFactory) -> Begin:
    folder = tmp_path_factory.mktemp("shares")
    return share_function("strip_shares.cpp", "begin_of_share", "qqiqq", folder)


def shares(begin: Begin, strips: int, units: int, rows: int, walkers: int) -> list[range]:
    ends = [begin(strips * units, units, rows, w, walkers) for w in range(walkers + 1)]
    assert (ends[0], ends[-1]) == (0, strips * units)
    assert ends == sorted(ends)
    return [range(a, b) for a, b in itertools.pairwise(ends)]


# 1440 strips of 23 units are 32x3x1080x1920.
@pytest.mark.parametrize("walkers", [1, 7, 32, 264, 1056])
@pytest.mark.parametrize("units", [1, 2, 23, 135, 1366])
@pytest.mark.parametrize("strips", [0, 1, 3, 360, 1440])
@pytest.mark.parametrize("rows", [8, 10, 42, 48])
def test_each_unit_is_walked_once(
    begin: Begin, strips: int, units: int, rows: int, walkers: int
) -> None:
    sizes = [len(share) for share in shares(begin, strips, units, rows, walkers)]
    total = strips * units
    assert sum(sizes) == total
    if total < 32 * walkers:
        assert max(sizes) - min(sizes) <= 1


# Those of 33 and 72 images of 3x1080x1920.
@pytest.mark.parametrize("strips", [1485, 3240])
def test_shares_take_the_same_time(begin: Begin, strips: int) -> None:
    """With what a beginning costs, which a warp that walks through three strips has three times."""
    units, rows = 23, 48
    times = []
    for share in shares(begin, strips, units, rows, 1056):
        beginnings = share[-1] // units - share[0] // units + 1
        times.append(rows * len(share) + ROWS_OF_A_BEGINNING * beginnings)
    # Even shares: 1.2 units above the mean.
    assert max(times) <= sum(times) / len(times) + 0.5 * rows


@pytest.fixture(scope="module")
def rows_of_unit(tmp_path_factory: pytest.TempPathFactory) -> RowsOfUnit:
    folder = tmp_path_factory.mktemp("rows")
    return share_function("strip_shares.cpp", "rows_of_unit", "qqi", folder)


@pytest.mark.parametrize("warps", [2, 3])
@pytest.mark.parametrize("height", [4, 9, 131, 720, 1080, 2160, 43_700, 3_150_000])
@pytest.mark.parametrize("strips", [1, 12, 30, 48, 90, 600, 10**6])
def test_units_are_pairs_of_rows_whose_sums_are_exact(
    rows_of_unit: RowsOfUnit, strips: int, height: int, warps: int
) -> None:
    rows = rows_of_unit(strips, height, warps)
    assert rows % 2 == 0
    assert rows >= 8
    five_above, four_columns = 5, 4
    assert (rows + five_above) * four_columns * 255**2 < 2**24


# One image of 3x720x1280, 3x1024x1024, 3x1080x1920 or 3x1440x2560 in strips of 128 columns, and of
# the first, third and fourth in those of 120.
@pytest.mark.parametrize(
    ("strips", "height", "warps"),
    [
        (30, 720, 2),
        (24, 1024, 2),
        (45, 1080, 2),
        (60, 1440, 2),
        (33, 720, 3),
        (48, 1080, 3),
        (66, 1440, 3),
    ],
)
def test_units_of_one_image_come_out_even(
    rows_of_unit: RowsOfUnit, strips: int, height: int, warps: int
) -> None:
    """A scheduler's warps take hardly more rows than their share of the image."""
    schedulers = 528
    rows = rows_of_unit(strips, height, warps)
    units = strips * math.ceil(height / rows)
    turns = math.ceil(units / schedulers)
    if turns > warps:
        turns = warps * math.ceil(units / (warps * schedulers))
    assert turns * rows <= 1.12 * strips * height / schedulers
