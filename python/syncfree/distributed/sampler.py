"""A sampler for `DataLoader` that hands out indices as ranks become free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized

from torch.utils.data import Sampler

from syncfree.distributed.claims import Claims
from syncfree.distributed.fleet import Fleet, connect
from syncfree.distributed.policy import DIVISOR, order_by_cost


class DynamicSampler(Sampler[int]):
    """Gives each index of a data set to one rank, whichever asks next.

    A replacement for `torch.utils.data.DistributedSampler` in evaluation: nothing is padded or done
    twice, and a slow GPU or a few large images do not hold the others up. Which indices a rank gets
    differs from run to run, so key results by index. A rank takes chunks in proportion to its
    measured speed and to what is left; each iteration over the sampler is a new pass. It has no
    `len`, nor has a `DataLoader` with it: only the end of a pass shows how many indices a rank got.

    All ranks must make their samplers in the same order and iterate over each equally often. If a
    rank fails, its indices stay undone; `evaluate` gives them to the others.

    Args:
        data: the data set, or its length.
        costs: what each item costs in any unit, such as its pixels; default: all the same.
        fleet: default `connect()`.
        divisor: the larger, the finer the chunks.

    Raises:
        TypeError: `data` is neither a data set with a length nor an integer.
        ValueError: `costs` has another length than the data, or a negative number; a negative
            length, or a divisor that is not more than 0.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> from syncfree.distributed import DynamicSampler
        >>> data = [10.0, 20.0, 30.0]
        >>> loader = DataLoader(data, sampler=DynamicSampler(data), batch_size=2)
        >>> sorted(value for batch in loader for value in batch.tolist())
        [10.0, 20.0, 30.0]
    """

    def __init__(
        self,
        data: Sized | int,
        *,
        costs: Sequence[float] | None = None,
        fleet: Fleet | None = None,
        divisor: float = DIVISOR,
    ) -> None:
        if not isinstance(data, (int, Sized)):
            raise TypeError(
                f"data is a data set with a length, or that length; got {type(data).__name__}"
            )
        length = data if isinstance(data, int) else len(data)
        if length < 0:
            raise ValueError(f"data is a data set or its length, at least 0; got {length}")
        if not divisor > 0:
            raise ValueError(f"divisor is more than 0, got {divisor:g}")
        checked = check_costs(costs, length)
        self._order = order_by_cost(checked)
        self._costs = [checked[item] for item in self._order]
        self._fleet = fleet or connect()
        self._channel = self._fleet.next_run("sampler")
        self._divisor = divisor
        self._pass = 0

    def __iter__(self) -> Iterator[int]:
        name = f"pass/{self._pass}"
        self._pass += 1
        claims = Claims(self._channel, name, self._costs, self._fleet.world, self._divisor)
        while chunk := claims.take():
            for place in chunk:
                yield self._order[place]
                # The request for the next index is the sign that this one is done or under way.
                claims.done(place)


def check_costs(costs: Sequence[float] | None, length: int) -> Sequence[float]:
    """The costs, or ones.

    Raises:
        ValueError: their number is not `length`, or one is negative or not finite.
    """
    if costs is None:
        return [1.0] * length
    if len(costs) != length:
        raise ValueError(f"expected a cost for each of {length} items, got {len(costs)}")
    numbers = [float(cost) for cost in costs]  # numbers of NumPy and torch are not JSON
    wrong = next((item for item, cost in enumerate(numbers) if not 0 <= cost < float("inf")), None)
    if wrong is not None:
        raise ValueError(f"costs are finite and at least 0; item {wrong} has {costs[wrong]}")
    return numbers
