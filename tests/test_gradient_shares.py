"""How the warps that find gradients share the units of all strips: each unit belongs to one."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from share_functions import share_function

ROWS_OF_A_BEGINNING, TIME_OF_ROW, TIME_OF_ROW_AT_EDGE = 28, 20, 22
ROWS = 8
Begin = Callable[[int, int, int, int, int, int], int]


@pytest.fixture(scope="module")
def begin(tmp_path_factory: pytest.TempPathFactory) -> Begin:
    folder = tmp_path_factory.mktemp("shares")
    return share_function("gradient_shares.cpp", "begin_of_gradient_share", "qiiiqq", folder)


def shares(begin: Begin, planes: int, strips: int, units: int, walkers: int) -> list[range]:
    ends = [begin(planes, strips, units, ROWS, w, walkers) for w in range(walkers + 1)]
    assert (ends[0], ends[-1]) == (0, planes * strips * units)
    assert ends == sorted(ends)
    return [range(a, b) for a, b in itertools.pairwise(ends)]


@pytest.mark.parametrize("walkers", [1, 7, 1056])
@pytest.mark.parametrize("units", [1, 28, 135])
@pytest.mark.parametrize("strips", [2, 3, 17])
@pytest.mark.parametrize("planes", [0, 1, 24, 192])
def test_each_unit_is_walked_once(
    begin: Begin, planes: int, strips: int, units: int, walkers: int
) -> None:
    sizes = [len(share) for share in shares(begin, planes, strips, units, walkers)]
    if planes * strips * units < 32 * walkers:
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("planes", [24, 96])  # 8x3x1080x1920, and four times as many
def test_shares_take_the_same_time(begin: Begin, planes: int) -> None:
    """With what each beginning costs, and mirror images at an edge."""
    strips, units = 17, 135

    def time(share: range) -> int:
        rows = 0
        for strip, of_strip in itertools.groupby(share, lambda unit: unit // units):
            of_row = TIME_OF_ROW_AT_EDGE if strip % strips in (0, strips - 1) else TIME_OF_ROW
            rows += of_row * (ROWS_OF_A_BEGINNING + ROWS * len(list(of_strip)))
        return rows

    times = [time(share) for share in shares(begin, planes, strips, units, 1056)]
    # What is left is rounding to whole units; even shares lie 3 to 7 times as far above the mean.
    assert max(times) <= sum(times) / len(times) + 1.5 * ROWS * TIME_OF_ROW_AT_EDGE
