"""Takes items of a shared list, so that each goes to one rank, with the store as the referee."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from syncfree.distributed.channel import Channel
from syncfree.distributed.policy import DIVISOR, ChunkSizes, Cursor

_NANO = 10**9


class Claims:
    """A list of items that all ranks take chunks of.

    The store's counter decides who gets what: `add` is one step for all processes. What a chunk
    should be is judged by a cursor that may be old by then, which costs balance and never an item.

    Args:
        channel: the same conversation in all processes.
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
        # Speeds add up in the store as integers: shares of this list in a second, times a billion.
        total = sum(costs)
        self._weights = [cost / total if total else 1 / len(costs) for cost in costs]
        self._world = world
        self._sizes = ChunkSizes(self._weights, world, divisor)
        self._clock = clock
        self._begin: float | None = None
        self._claimed = 0.0
        self._left = 1.0  # that nobody had when this rank last looked
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
        """Whether what this rank has not done yet is as much as its part of half of the rest.

        Who loads fast would otherwise take all of a short list before the first item is computed,
        and the other ranks none.
        """
        return self._world > 1 and self._claimed - self._done >= self._left / (2 * self._world)

    def done(self, place: int) -> None:
        """Count an item as done, which is how the speed of this rank is known."""
        self._done += self._weights[place]

    def _granted(self, take: Cursor, after: Cursor) -> range:
        """What a claim got: where front and back meet, the earlier one has the items."""
        if take.front:
            limit = max(0, self._count - after.back)
            return range(min(after.front - take.front, limit), min(after.front, limit))
        limit = min(after.front, self._count)
        end = self._count - after.back + take.back
        return range(max(end - take.back, limit), max(end, limit))

    def _share(self) -> float | None:
        """This rank's part in the speed of all, those not measured yet taken for average."""
        seconds = self._clock() - (self._begin or 0.0)
        if not self._done or seconds <= 0:
            return None
        speed = max(1, int(_NANO * self._done / seconds))
        known = self._channel.add(f"{self._name}/known", 0 if self._speed else 1)
        total = self._channel.add(f"{self._name}/speed", speed - self._speed)
        self._speed = speed
        # Between the two steps of another rank the total may lack it.
        return min(1.0, speed * known / (max(total, speed) * self._world))
