"""Simulates schedules of work on 1 to 1024 ranks: dynamic and static, compared with the bound.

Run it as `python benchmarks/scheduler_sim.py`; it needs neither a GPU nor torch. Times are
simulated, so every run prints the same figures.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from syncfree.distributed.policy import ChunkSizes, Cursor, cost_shares, equal_shares, order_by_cost

ITEMS_PER_RANK = 200
CLAIM_SECONDS = 1e-3  # a pessimistic time for one claim's calls of a store on another host
MEAN_SECONDS = 0.01  # of one item on a rank of speed 1
DECODED_AHEAD = 6  # items that a rank has claimed beyond the one that it measures


def heavy_tailed(count: int, rng: random.Random) -> list[float]:
    """Lognormal with sigma 1.25 and mean `MEAN_SECONDS`: 1 % of the items take 14 % of the time."""
    sigma = 1.25
    drawn = [rng.lognormvariate(-sigma * sigma / 2, sigma) for _ in range(count)]
    return [MEAN_SECONDS * each for each in drawn]


FLEETS: dict[str, Callable[[int, random.Random], list[float]]] = {
    "equal": lambda world, rng: [1.0] * world,
    "one at a quarter": lambda world, rng: [0.25] + [1.0] * (world - 1),
    "uniform in 0.5..1": lambda world, rng: [rng.uniform(0.5, 1.0) for _ in range(world)],
}


def bound(costs: Sequence[float], speeds: Sequence[float]) -> float:
    """The least possible time: all ranks busy to the end, or the longest item on the fastest."""
    return max(sum(costs) / sum(speeds), max(costs) / max(speeds))


def fixed(
    shares: Sequence[Sequence[int]], costs: Sequence[float], speeds: Sequence[float]
) -> float:
    """When the last rank ends if each has its share from the start."""
    return max(
        sum(costs[item] for item in share) / speed
        for share, speed in zip(shares, speeds, strict=True)
    )


def dynamic(
    costs: Sequence[float],
    estimates: Sequence[float],
    speeds: Sequence[float],
    divisor: float,
) -> tuple[float, float]:
    """When the last rank ends, and claims per rank, with chunks by measured speed.

    Args:
        costs: seconds of the items on a rank of speed 1.
        estimates: the costs that the policy assumes.
        speeds: the ranks' speeds.
        divisor: see `ChunkSizes`.
    """
    order = order_by_cost(estimates)
    world, count = len(speeds), len(costs)
    sizes = ChunkSizes([estimates[item] for item in order], world, divisor)
    taken, claims, end = Cursor(0, 0), 0, 0.0
    done = [0.0] * world  # estimated cost of the items that each rank has done
    measured = [0.0] * world  # speeds
    total, known = 0.0, 0  # sum and number of the measured speeds
    queues: list[deque[int]] = [deque() for _ in speeds]
    ready = [(0.0, rank) for rank in range(world)]  # when a rank claims or measures next
    while ready:
        now, rank = heapq.heappop(ready)
        queue = queues[rank]
        if len(queue) <= DECODED_AHEAD and taken.front + taken.back < count:
            share = None
            if done[rank]:
                speed = done[rank] / now
                total, known = total + speed - measured[rank], known + (measured[rank] == 0)
                measured[rank] = speed
                share = speed * known / (total * world)
            take = sizes.take(taken, share)
            left = count - taken.front - taken.back
            front = range(taken.front, taken.front + min(take.front, left))
            back = range(count - taken.back - min(take.back, left), count - taken.back)
            queue.extend(order[place] for place in (*front, *back))
            taken = Cursor(taken.front + len(front), taken.back + len(back))
            claims += 1
            heapq.heappush(ready, (now + CLAIM_SECONDS, rank))
        elif queue:
            item = queue.popleft()
            done[rank] += estimates[item]
            heapq.heappush(ready, (now + costs[item] / speeds[rank], rank))
        else:
            end = max(end, now)
    return end, claims / world


def simulate(world: int, fleet: str, divisors: Sequence[float], noise: float) -> dict[str, object]:
    """The efficiency (bound over simulated time) of every way to divide the same work."""
    rng = random.Random(world)
    costs = heavy_tailed(world * ITEMS_PER_RANK, rng)
    estimates = [cost * rng.lognormvariate(0, noise) for cost in costs]
    speeds = FLEETS[fleet](world, rng)
    best = bound(costs, speeds)
    row: dict[str, object] = {
        "ranks": world,
        "speeds": fleet,
        "bound_seconds": best,
        "equal": best / fixed(equal_shares(len(costs), world), costs, speeds),
        "cost": best / fixed(cost_shares(estimates, world), costs, speeds),
    }
    for divisor in divisors:
        seconds, claims = dynamic(costs, estimates, speeds, divisor)
        row[f"dynamic/{divisor:g}"] = best / seconds
        row[f"claims/{divisor:g}"] = claims
    return row


def main() -> None:
    """Print the table, and write it if requested."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 8, 32, 128, 1024])
    parser.add_argument("--divisors", type=float, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--noise", type=float, default=0.3, help="log-error of estimated costs")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    dynamics = [f"dynamic/{divisor:g}" for divisor in arguments.divisors]
    columns = ["equal", "cost", *dynamics]
    rows = []
    print("efficiency: time of the bound over time; claims per rank in brackets\n")
    print(f"{'speeds':18} {'ranks':>5} " + " ".join(f"{name:>14}" for name in columns))
    for fleet in FLEETS:
        for world in arguments.ranks:
            row = simulate(world, fleet, arguments.divisors, arguments.noise)
            rows.append(row)
            cells = [f"{row[name]:14.3f}" for name in columns[:2]]
            for name in dynamics:
                claims = row[name.replace("dynamic", "claims")]
                cells.append(f"{row[name]:7.3f} ({claims:4.0f})")
            print(f"{fleet:18} {world:5} " + " ".join(cells), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
