"""How work is divided over ranks: two fixed divisions, and the size of chunks that ranks claim."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

Schedule = Literal["dynamic", "equal", "cost"]
SCHEDULES: tuple[Schedule, ...] = ("dynamic", "equal", "cost")

TIMEOUT_SECONDS = 300.0
"""After so long a rank that holds work and sends nothing is given up."""

DIVISOR = 8
"""A chunk is at most an equal share of the remaining work divided by this. A smaller divisor saves
claims but leaves a rank that slows down with too much; set by `benchmarks/scheduler_sim.py`."""

SLOW = 0.75
"""A rank below this part of the mean speed takes the cheap items."""

_BITS = 32
_FRONT = (1 << _BITS) - 1


def order_by_cost(costs: Sequence[float]) -> list[int]:
    """Items from the most to the least expensive; equal ones keep their order.

    The items handed out last bound how unevenly the ranks end, so they should be small.

    Reference:
        Graham, Bounds on Multiprocessing Timing Anomalies, 1969.

    Example:
        >>> from syncfree.distributed.policy import order_by_cost
        >>> order_by_cost([1, 5, 1, 7])
        [3, 1, 0, 2]
    """
    return sorted(range(len(costs)), key=lambda item: -costs[item])


def equal_shares(count: int, world: int) -> list[list[int]]:
    """Every `world`-th item to each rank, as `torch.utils.data.DistributedSampler` does.

    Example:
        >>> from syncfree.distributed.policy import equal_shares
        >>> equal_shares(5, 2)
        [[0, 2, 4], [1, 3]]
    """
    return [list(range(rank, count, world)) for rank in range(world)]


def cost_shares(costs: Sequence[float], world: int) -> list[list[int]]:
    """Shares of about equal cost: the most expensive item left goes to the lightest share.

    Example:
        >>> from syncfree.distributed.policy import cost_shares
        >>> cost_shares([8, 1, 1, 6], 2)
        [[0], [3, 1, 2]]
    """
    shares: list[list[int]] = [[] for _ in range(world)]
    loads = [(0.0, rank) for rank in range(world)]
    for item in order_by_cost(costs):
        load, rank = heapq.heappop(loads)
        shares[rank].append(item)
        heapq.heappush(loads, (load + costs[item], rank))
    return shares


class Cursor(NamedTuple):
    """How much of a list has been handed out: from its front, and from its back.

    Both counts fit into one 64-bit counter, which a store changes atomically: a rank that adds to
    it learns what all others had taken before.
    """

    front: int
    back: int

    @classmethod
    def unpack(cls, counter: int) -> Cursor:
        """The cursor that `pack` has turned into a counter."""
        return cls(counter & _FRONT, counter >> _BITS)

    def pack(self) -> int:
        """The counter; the counters of two cursors add up to that of both together."""
        return self.back << _BITS | self.front


class ChunkSizes:
    """What a rank should take next of a list that is sorted from expensive to cheap.

    The cost of a chunk is the remaining cost times the rank's share of the total speed, divided by
    `divisor`: large while much is left, single items at the end, and smaller for a slow rank (a
    fast one comes back sooner). It is taken from the expensive front, because what is done last
    should be small. A rank that has not been measured, or is slow, takes from the cheap back
    instead: its items end late.

    Args:
        costs: of the items, in the order of the list; all at least 0.
        world: number of ranks.
        divisor: the larger, the finer.

    Reference:
        Polychronopoulos and Kuck, Guided Self-Scheduling, 1987; weighted by measured speed as in
        Hummel et al., Load-Sharing in Heterogeneous Systems via Weighted Factoring, 1996.

    Example:
        >>> from syncfree.distributed.policy import ChunkSizes, Cursor
        >>> sizes = ChunkSizes([1] * 64, world=2)
        >>> sizes.take(Cursor(0, 0), None), sizes.take(Cursor(0, 1), 0.5)
        (Cursor(front=0, back=1), Cursor(front=3, back=0))
    """

    def __init__(self, costs: Sequence[float], world: int, divisor: float = DIVISOR) -> None:
        self._ends = list(accumulate(costs, initial=0.0))
        self._world = world
        self._divisor = divisor

    def left(self, taken: Cursor) -> float:
        """The cost of what nobody has taken."""
        begin, end = taken.front, len(self._ends) - 1 - taken.back
        return self._ends[end] - self._ends[begin] if begin < end else 0.0

    def take(self, taken: Cursor, share: float | None) -> Cursor:
        """How much to take, from one of the ends, given what is taken already.

        At least one item, also if none is left: the claim then gets nothing.

        Args:
            taken: what all ranks have taken.
            share: of the rank in the speed of all; `None` if nothing has been measured.
        """
        if share is None:
            return Cursor(0, 1)
        begin, end = taken.front, len(self._ends) - 1 - taken.back
        if begin >= end:
            return Cursor(1, 0)
        # No more than an equal share: a speed measured too high would cost far more than the
        # additional claims of a fast rank.
        part = min(share, 1 / self._world) / self._divisor
        # The limit on the number keeps items of cost 0 from all going to one rank.
        most = max(1, int((end - begin) * part))
        budget = (self._ends[end] - self._ends[begin]) * part
        if share * self._world < SLOW:
            first = bisect_left(self._ends, self._ends[end] - budget, begin, end)
            return Cursor(0, min(max(1, end - first), most))
        last = bisect_right(self._ends, self._ends[begin] + budget, begin, end + 1) - 1
        return Cursor(min(max(1, last - begin), most), 0)
