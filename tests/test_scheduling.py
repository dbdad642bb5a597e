"""How work is divided: every item goes to one rank, whoever asks when; and it goes evenly."""

from __future__ import annotations

import itertools
import re
import threading
from pathlib import Path

import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from scheduler_sim import FLEETS, bound, dynamic, fixed, heavy_tailed, simulate
from syncfree.distributed import DynamicSampler, Fleet
from syncfree.distributed.channel import Channel
from syncfree.distributed.claims import Claims
from syncfree.distributed.policy import (
    DIVISOR,
    ChunkSizes,
    Cursor,
    cost_shares,
    equal_shares,
    order_by_cost,
)

COSTS = st.lists(st.floats(0, 1e6), max_size=60)


@given(COSTS, st.integers(1, 9))
def test_shares_hold_every_item_once(costs, world):
    for shares in (equal_shares(len(costs), world), cost_shares(costs, world)):
        assert len(shares) == world
        assert sorted(itertools.chain(*shares)) == list(range(len(costs)))
    sizes = [len(share) for share in equal_shares(len(costs), world)]
    assert max(sizes) - min(sizes) <= 1


@given(COSTS, st.integers(1, 9))
def test_shares_by_cost_are_at_most_half_above_the_bound(costs, world):
    """The item that ends last began before the mean load. Behind the first `world` items it is at
    most half of the two of which some rank must have both."""
    loads = [sum(costs[item] for item in share) for share in cost_shares(costs, world)]
    ranked = sorted(costs, reverse=True)
    pair = ranked[world - 1] + ranked[world] if len(costs) > world else 0
    best = max(sum(costs) / world, max(costs, default=0), pair)
    assert max(loads) <= 1.5 * best * (1 + 1e-9)


class Clock:
    """Seconds that pass only when told to."""

    now = 0.0

    def __call__(self):
        return self.now


def claims_of(world, costs, clock=None):
    store = dist.HashStore()
    return [
        Claims(Channel(store, "x"), "list", costs, world, clock=clock or Clock())
        for _ in range(world)
    ]


@given(st.lists(st.floats(0, 1e3), max_size=40), st.data())
def test_every_item_is_claimed_once_in_any_order_of_claims(costs, data):
    costs = sorted(costs, reverse=True)
    world = data.draw(st.integers(1, 5))
    clock = Clock()
    ranks = claims_of(world, costs, clock)
    speeds = data.draw(st.lists(st.floats(0.01, 100), min_size=world, max_size=world))
    taken, active = [], list(range(world))
    while active:
        rank = data.draw(st.sampled_from(active))
        chunk = ranks[rank].take()
        if not chunk:
            active.remove(rank)
        for place in chunk:
            clock.now += 1 / speeds[rank]
            ranks[rank].done(place)
        taken += chunk
    assert sorted(taken) == list(range(len(costs)))


def test_holding_half_of_an_equal_share_of_the_rest_is_enough():
    """Who loads fast would else take all of a short list before anything is computed."""
    own, other = claims_of(2, [1.0] * 24)
    held = []
    while not own.holds_enough():
        held += own.take()
    assert len(held) == 5  # of which 19 / 4 is the first to be less
    for place in held:
        own.done(place)
    assert not own.holds_enough()
    while other.take():
        pass
    assert other.holds_enough()
    (alone,) = claims_of(1, [1.0] * 3)
    alone.take()
    assert not alone.holds_enough()  # there is nobody to leave anything to


class StaleStore:
    """A store in which another rank claims between every look at the cursor and the claim."""

    def __init__(self):
        self.real = dist.HashStore()
        self.rival = Claims(Channel(self.real, "x"), "list", [1.0] * 50, 2)
        self.stolen = []
        self.depth = 0

    def add(self, key, amount):
        if amount == 0 and key.endswith("taken/counter") and not self.depth:
            self.depth += 1
            found = self.real.add(key, 0)
            self.stolen += self.rival.take()
            self.depth -= 1
            return found
        return self.real.add(key, amount)


def test_a_claim_by_an_old_cursor_takes_no_item_twice():
    store = StaleStore()
    own = Claims(Channel(store, "x"), "list", [1.0] * 50, 2)
    taken = []
    while chunk := own.take():
        taken += chunk
        for place in chunk:
            own.done(place)
    assert sorted([*taken, *store.stolen]) == list(range(50))
    assert taken
    assert store.stolen


def test_threads_claim_every_item_once():
    costs = [float(1000 - item) for item in range(1000)]
    found = [[] for _ in range(8)]
    store = dist.HashStore()

    def work(rank):
        claims = Claims(Channel(store, "x"), "list", costs, 8)
        while chunk := claims.take():
            for place in chunk:
                found[rank].append(place)
                claims.done(place)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(itertools.chain(*found)) == list(range(1000))


def test_chunks_follow_what_is_left_and_the_speed():
    sizes = ChunkSizes([1.0] * 1000, world=4, divisor=4)
    fair = [sizes.take(Cursor(taken, 0), 0.25).front for taken in (0, 500, 990, 1000)]
    assert fair == [62, 31, 1, 1]
    assert sizes.take(Cursor(0, 0), 0.9) == sizes.take(Cursor(0, 0), 0.25)
    # A slow rank takes less, of the cheap end; one of unknown speed a single item.
    assert sizes.take(Cursor(0, 0), 0.05) == Cursor(0, 12)
    assert sizes.take(Cursor(0, 0), None) == Cursor(0, 1)


def test_chunks_follow_the_speed_that_was_measured():
    """One rank takes a second for an item, the other four."""
    store, clocks = dist.HashStore(), (Clock(), Clock())
    fast, slow = (Claims(Channel(store, "x"), "list", [1.0] * 1000, 2, clock=c) for c in clocks)
    for claims, clock, seconds in ((fast, clocks[0], 1), (slow, clocks[1], 4)):
        (place,) = claims.take()
        clock.now += seconds
        claims.done(place)
    chunks = fast.take(), slow.take()
    # Known alone, a rank counts as average; then the slow one has a fifth of the speed of both.
    assert [len(chunk) for chunk in chunks] == [int(998 / 2 / DIVISOR), int(936 / 5 / DIVISOR)]
    assert (chunks[0].start, chunks[1].stop) == (0, 998)  # what is expensive is at the front


def test_chunks_count_cost_and_not_items():
    sizes = ChunkSizes([100.0, *[1.0] * 100], world=1, divisor=2)
    assert sizes.take(Cursor(0, 0), 1.0) == Cursor(1, 0)
    assert sizes.take(Cursor(1, 0), 1.0) == Cursor(50, 0)
    free = ChunkSizes([0.0] * 40, world=2, divisor=2)
    assert free.take(Cursor(0, 0), 0.5) == Cursor(10, 0)


def test_cursors_add_up_in_one_counter():
    first, second = Cursor(3, 2**20), Cursor(2**31, 5)
    total = Cursor.unpack(first.pack() + second.pack())
    assert total == Cursor(3 + 2**31, 5 + 2**20)


def test_expensive_items_come_first():
    assert order_by_cost([2, 9, 2, 30]) == [3, 1, 0, 2]


# Simulation: the law of the policy, on work that it was not tuned on.


@pytest.mark.parametrize("fleet", FLEETS)
@pytest.mark.parametrize("world", [1, 3, 16, 64])
def test_dynamic_is_near_the_bound_and_static_is_not_nearer(world, fleet):
    row = simulate(world, fleet, [DIVISOR], noise=0.5)
    assert row[f"dynamic/{DIVISOR}"] > 0.8
    assert row[f"dynamic/{DIVISOR}"] <= 1
    assert row[f"dynamic/{DIVISOR}"] > row["equal"] - 0.05


def test_simulated_time_of_known_work():
    """Two items of a second on two ranks, with claims of a millisecond."""
    seconds, claims = dynamic([1.0, 1.0], [1.0, 1.0], [1.0, 1.0], divisor=4)
    assert seconds == pytest.approx(1.002, abs=0.02)
    assert 1 <= claims <= 2
    assert fixed([[0, 1], []], [1.0, 2.0], [2.0, 1.0]) == 1.5
    assert bound([4.0, 1.0], [1.0, 1.0]) == 4.0


def test_the_heavy_tail_is_one():
    import random

    costs = sorted(heavy_tailed(100_000, random.Random(1)), reverse=True)
    assert sum(costs) / len(costs) == pytest.approx(0.01, rel=0.05)
    assert sum(costs[:1000]) / sum(costs) > 0.1


def test_the_docs_have_the_figures_of_the_simulation():
    """Of the fleets that do not take long."""
    text = (Path(__file__).parent.parent / "docs" / "distributed.md").read_text()
    rows = re.findall(r"^\| ([\w. ]+) \| (\d+) \| ((?:[01]\.\d{3} \| ?){5})$", text, re.MULTILINE)
    assert {fleet for fleet, _, _ in rows} == set(FLEETS)
    short = [(fleet, int(world), cells) for fleet, world, cells in rows if int(world) <= 32]
    assert len(short) == 9
    for fleet, world, cells in short:
        row = simulate(world, fleet, [1, 4, 8], noise=0.3)
        names = ("equal", "cost", "dynamic/1", "dynamic/4", "dynamic/8")
        assert re.findall(r"[\d.]+", cells) == [f"{row[name]:.3f}" for name in names]


# The sampler


def samplers(length, world, **options):
    store = dist.HashStore()
    return [
        DynamicSampler(length, fleet=Fleet(store, rank, world), **options) for rank in range(world)
    ]


@pytest.mark.parametrize(("length", "world"), [(0, 2), (1, 3), (50, 1), (50, 3)])
def test_samplers_share_each_pass(length, world):
    ranks = samplers(length, world)
    for _ in range(2):
        iterators = [iter(rank) for rank in ranks]
        taken = []
        while iterators:
            for iterator in tuple(iterators):
                index = next(iterator, None)
                if index is None:
                    iterators.remove(iterator)
                else:
                    taken.append(index)
        assert sorted(taken) == list(range(length))


@pytest.mark.parametrize(
    ("costs", "message"),
    [([1, 2], "a cost for each of 3 items, got 2"), ([1, -1, 1], "item 1 has -1"),
     ([1, 1, float("nan")], "item 2 has nan")],
)  # fmt: skip
def test_wrong_costs(costs, message):
    with pytest.raises(ValueError, match=message):
        DynamicSampler(3, costs=costs)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [(-3, {}, "at least 0; got -3"), (3, {"divisor": 0}, "divisor is more than 0, got 0")],
)
def test_wrong_sizes(data, options, message):
    with pytest.raises(ValueError, match=message):
        DynamicSampler(data, **options)


def test_data_without_a_length():
    with pytest.raises(TypeError, match=r"a data set with a length, .*; got generator$"):
        DynamicSampler(item for item in range(3))
