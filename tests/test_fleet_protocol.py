"""Coordinator and workers over one store, with threads as ranks: deaths, silence, errors, order."""

from __future__ import annotations

import threading
import time

import pytest
import torch
import torch.distributed as dist

from syncfree.distributed.busy import Busy
from syncfree.distributed.channel import Channel
from syncfree.distributed.claims import Claims
from syncfree.distributed.coordinator import Coordinator, Lost, Settled
from syncfree.distributed.worker import Worker
from syncfree.errors import RankError


class DiesError(Exception):
    """Ends a rank as a signal would: without a word."""


class Run:
    """A coordinator in this thread, and one thread per rank that squares its items."""

    def __init__(self, world, count, behave=lambda rank, item: None, **options):
        self.store = dist.HashStore()
        self.channel = Channel(self.store, "run")
        self.world = world
        self.behave = behave
        self.done = [[] for _ in range(world)]
        self.reports = []
        self.deaths = []
        self.release = threading.Event()  # ends ranks that are stuck
        costs = options.pop("costs", [1.0] * count)
        self.coordinator = Coordinator(
            self.channel, world, costs, deaths=self._deaths, **{"timeout": 60, **options}
        )
        self.items = range(count)

    def __call__(self, items=None):
        threads = [threading.Thread(target=self._rank, args=(r,)) for r in range(self.world)]
        for thread in threads:
            thread.start()
        try:
            events = list(self.coordinator.run(self.items if items is None else items))
            self.coordinator.end("result")
        finally:
            self.release.set()
            for thread in threads:
                thread.join()
        self.lost = {event.rank: event for event in events if isinstance(event, Lost)}
        settled = [event for event in events if isinstance(event, Settled)]
        self.outcomes = {event.item: event.outcome for event in settled}
        assert len(self.outcomes) == len(settled)
        self.statistics = self.coordinator.statistics()
        return self

    def _deaths(self):
        found, self.deaths = self.deaths, []
        return found

    def _rank(self, rank):
        worker = Worker(self.channel, rank, self.world)
        try:
            worker.ready(torch.device("cpu"), "thread", Busy())
            for items in worker.rounds():
                for item in filter(lambda item: item is not None, items):
                    self.behave(rank, item)
                    self.done[rank].append(item)
                    worker.settle(item, item**2)
            assert worker.result == "result"
        except DiesError:
            self.deaths.append((rank, "killed by SIGKILL"))
        except ValueError as error:
            worker.fail(error)
            assert list(worker.rounds()) == []


def squares(count):
    return {item: item**2 for item in range(count)}


@pytest.mark.parametrize("schedule", ["dynamic", "equal", "cost"])
@pytest.mark.parametrize(("world", "count"), [(1, 20), (3, 100), (4, 2), (2, 0)])
def test_every_item_is_settled_once(schedule, world, count):
    run = Run(world, count, schedule=schedule, costs=[item + 1.0 for item in range(count)])()
    assert run.outcomes == squares(count)
    assert run.lost == {}
    assert run.coordinator.unfinished == {}
    assert [each.report.rank for each in run.statistics.ranks] == list(range(world))
    assert [each.report.items for each in run.statistics.ranks] == [len(x) for x in run.done]
    if schedule == "equal":
        assert [sorted(share) for share in run.done] == [
            list(range(rank, count, world)) for rank in range(world)
        ]


def test_only_what_is_asked_for_is_done():
    run = Run(2, 10)(items=[3, 7])
    assert run.outcomes == {3: 9, 7: 49}


def test_a_slow_rank_gets_less():
    pause = threading.Event()
    run = Run(2, 60, lambda rank, item: pause.wait(0.05 if rank == 0 else 0.001))()
    assert run.outcomes == squares(60)
    assert len(run.done[0]) < 20 < len(run.done[1])


@pytest.mark.parametrize("schedule", ["dynamic", "equal", "cost"])
@pytest.mark.parametrize("after", [0, 5])
def test_survivors_do_what_a_dead_rank_held(schedule, after):
    begun, dead = [], threading.Event()

    def die(rank, item):
        if rank != 1:
            dead.wait(60)  # or they might have done everything by then
            return
        begun.append(item)
        if len(begun) > after:
            dead.set()
            raise DiesError

    run = Run(3, 60, die, schedule=schedule)()
    assert run.outcomes == squares(60)
    assert run.lost[1].reason == "killed by SIGKILL"
    assert begun[-1] in run.lost[1].items
    assert run.statistics.reissued >= 1
    assert run.statistics.ranks[1].lost == "killed by SIGKILL"
    assert run.coordinator.unfinished == {}


def test_a_rank_that_fails_is_named_and_released():
    def fail(rank, item):
        if rank == 0:
            raise ValueError("no such kernel")

    run = Run(2, 30, fail, schedule="equal")()  # so that each rank has items for sure
    assert run.outcomes == squares(30)
    assert run.lost[0].reason == "ValueError: no such kernel"


def test_a_stuck_rank_is_given_up_and_named():
    given_up, now = [], 0

    def clock():
        """Time passes only, and fast, while rank 0 has nothing to do."""
        nonlocal now
        healthy = run.coordinator._ranks.get(0)
        if healthy and healthy.idle >= 0 and run.coordinator._waits(healthy):
            now += 100
        return now

    run = Run(2, 30, give_up=given_up.append, schedule="equal", timeout=90, clock=clock)
    run.behave = lambda rank, item: run.release.wait() if rank == 1 else None
    run()
    assert run.outcomes == squares(30)
    assert given_up == [1]
    assert run.lost[1].reason == "stuck: nothing came from it for 90 s"


def test_ranks_that_were_stopped_with_the_leader_are_not_stuck():
    """Ctrl-Z, and `fg` after more than the timeout."""
    away = 0.0

    def clock():
        return time.monotonic() + away

    def stop():
        nonlocal away
        if not away and all(each.claimed for each in run.coordinator._ranks.values()):
            away = 1000.0
            threading.Timer(0.5, run.release.set).start()

    def work(rank, item):
        run.release.wait()

    run = Run(2, 8, work, clock=clock, checkpoint=stop)
    run()
    assert run.outcomes == squares(8)
    assert run.lost == {}


def test_nothing_is_handed_out_when_all_ranks_are_dead():
    def die(rank, item):
        raise DiesError

    run = Run(2, 9, die)()
    assert run.outcomes == {}
    assert set(run.lost) == {0, 1}
    assert set(run.coordinator.unfinished) == set(range(9))


def test_an_item_that_kills_ranks_is_not_handed_out_for_ever():
    """Its neighbours, which were lost with it, are done."""

    def die(rank, item):
        if item == 13:
            raise DiesError

    run = Run(4, 40, die)()
    assert run.outcomes == {item: item**2 for item in range(40) if item != 13}
    assert len(run.lost) == 2
    assert run.coordinator.unfinished == {13: "2 ranks were lost while they had it"}


def test_a_rank_that_never_starts_is_given_up():
    channel = Channel(dist.HashStore(), "run")
    seconds = iter(range(0, 10**6, 100))
    coordinator = Coordinator(channel, 1, [1.0], clock=lambda: next(seconds))
    (lost,) = coordinator.run([0])
    assert lost.reason.startswith("stuck")
    assert coordinator.unfinished == {0: "no rank is left to do it"}


def test_a_coordinator_that_is_stuck_is_given_up():
    channel = Channel(dist.HashStore(), "run")
    turns = iter([None])
    coordinator = Coordinator(channel, 2, [1.0], checkpoint=lambda: next(turns))
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(coordinator.run([0]))
    with pytest.raises(RankError, match=r"rank 0: stuck: the others heard nothing .* for 1\.5 s"):
        list(Worker(channel, 1, 2, timeout=1.5).rounds())


def test_a_checkpoint_can_end_the_run():
    def interrupt():
        raise KeyboardInterrupt

    coordinator = Coordinator(Channel(dist.HashStore(), "run"), 1, [1.0], checkpoint=interrupt)
    with pytest.raises(KeyboardInterrupt):
        list(coordinator.run([0]))


def test_a_rank_that_fails_after_the_end_still_hears_of_it():
    """It waits for the last word before it raises; forgotten too early it would wait for ever."""
    channel = Channel(dist.HashStore(), "run")
    coordinator, worker = Coordinator(channel, 1, [1.0]), Worker(channel, 0, 1)
    worker.ready(torch.device("cpu"), "thread", Busy())
    worker.fail(ValueError("too late"))
    coordinator.end("result")
    assert channel.read("word/0") == {"end": "result"}
    assert list(worker.rounds()) == []
    assert worker.result == "result"


def test_a_rank_that_was_given_up_takes_nothing_more():
    """It has come back, but nobody reads what it sends: its items would be done for nothing."""
    channel = Channel(dist.HashStore(), "run")
    rounds = {"items": [0], "costs": [1.0], "shares": None, "suspects": [], "suspect_costs": []}
    channel.publish("word/0", {**rounds, "lost": [1]})
    channel.publish("word/1", {"end": "result"})
    worker = Worker(channel, 1, 2)
    assert list(worker.rounds()) == []
    assert worker.result == "result"
    assert Claims(channel, "round/0", [1.0], 2).take() == range(1)
