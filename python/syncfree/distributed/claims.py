"""Claims items of a shared list, so that each goes to one rank; the store decides to which."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from syncfree.distributed.channel import Channel
from syncfree.distributed.policy import DIVISOR, ChunkSizes, Cursor

_NANO = 10**9


class Claims:
    """A list of items that all ranks take chunks of.

    The store's counter decides which rank gets which items: `add` is atomic over processes. The
    size of a chunk follows from a cursor that may be outdated, which costs balance, never an item.

    Args:
        channel: of the run, the same in all processes.
        name: of this list in it.
        costs: of the items, from expensive to cheap for the best balance.
        world: number of ranks.
        divisor: how fine the chunks are, see `ChunkSizes`.
        clock: seconds, for tests.

    Example:
        >>> import torch.distributed as dist
        >>> from syncfree.distributed.channel import Channel
        >>> from syncfree.distributed.claims import Claims
        >>> claims = Claims(Channel(dist.HashStore(), "example"), "list", [5, 3, 1], world=1)
        >>> claims.take(), claims.take()
        (range(2, 3), range(1, 2))
    """

    def __init__(
        self,
        channel: Channel,
        name: str,
        costs: Sequence[float],
        world: int,
        divisor: float = DIVISOR,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._channel = channel
        self._name = name
        self._count = len(costs)
        # Speeds are added up in the store as integers: a billion times the list's part per second.
        total = sum(costs)
        self._weights = [cost / total if total else 1 / len(costs) for cost in costs]
        self._world = world
        self._sizes = ChunkSizes(self._weights, world, divisor)
        self._clock = clock
        self._begin: float | None = None
        self._claimed = 0.0
        self._left = 1.0  # the part that nobody had claimed at this rank's last claim
        self._done = 0.0
        self._speed = 0

    def take(self) -> range:
        """Places in the list that now belong to this rank; empty when nothing is left."""
        if self._begin is None:
            self._begin = self._clock()
        taken = Cursor.unpack(self._channel.add(f"{self._name}/taken", 0))
        while taken.front + taken.back < self._count:
            take = self._sizes.take(taken, self._share())
            after = Cursor.unpack(self._channel.add(f"{self._name}/taken", take.pack()))
            chunk = self._granted(take, after)
            if chunk:
                self._claimed += sum(self._weights[place] for place in chunk)
                self._left = self._sizes.left(after)
                return chunk
            taken = after
        return range(0)

    def holds_enough(self) -> bool:
        """Whether this rank's undone items are at least its part of half of the unclaimed ones.

        A rank that loads fast would otherwise claim all of a short list before it has computed the
        first item, and leave none to the others.
        """
        return self._world > 1 and self._claimed - self._done >= self._left / (2 * self._world)

    def done(self, place: int) -> None:
        """Count an item as done, from which the speed of this rank follows."""
        self._done += self._weights[place]

    def _granted(self, take: Cursor, after: Cursor) -> range:
        """What a claim is granted: where claims from front and back meet, the earlier one wins."""
        if take.front:
            limit = max(0, self._count - after.back)
            return range(min(after.front - take.front, limit), min(after.front, limit))
        limit = min(after.front, self._count)
        end = self._count - after.back + take.back
        return range(max(end - take.back, limit), max(end, limit))

    def _share(self) -> float | None:
        """This rank's part in the speed of all ranks; those not measured yet count as average."""
        seconds = self._clock() - (self._begin or 0.0)
        if not self._done or seconds <= 0:
            return None
        speed = max(1, int(_NANO * self._done / seconds))
        known = self._channel.add(f"{self._name}/known", 0 if self._speed else 1)
        total = self._channel.add(f"{self._name}/speed", speed - self._speed)
        self._speed = speed
        # The total may lack another rank that is between the two steps above.
        return min(1.0, speed * known / (max(total, speed) * self._world))
