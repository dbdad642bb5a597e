"""Runs a comparison over several processes, on this host or started by `torchrun`."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import InitVar, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from syncfree.cli.compare import documents
from syncfree.cli.compare.engine import make_engine
from syncfree.cli.compare.fleet_options import SCHEDULE_NAMES, FleetOptions, torchrun_device
from syncfree.cli.compare.fleet_problems import problem_of_loss, problems_of_unfinished
from syncfree.cli.compare.images import pixels_of, quiet_pillow
from syncfree.cli.compare.maps import map_file
from syncfree.cli.compare.options import CompareOptions, UsageError
from syncfree.cli.compare.pairs import Pair, Pairing
from syncfree.cli.compare.pipeline import Outcome, compare_pairs
from syncfree.cli.compare.report import Comparison
from syncfree.cli.compare.tables import FleetProgress
from syncfree.cli.interrupt import deferred_interrupt
from syncfree.distributed.channel import Channel
from syncfree.distributed.coordinator import Coordinator, Lost, Settled
from syncfree.distributed.environment import available_cores, cores_of_each, numeric_variable
from syncfree.distributed.fleet import Fleet, connect
from syncfree.distributed.journal import Journal, JournalError, read_journals
from syncfree.distributed.launcher import Launcher
from syncfree.distributed.rendezvous import Note, Patience, say_nothing
from syncfree.distributed.worker import POLL_SECONDS, START_SECONDS, Worker
from syncfree.errors import RankError

_PREFIX = "compare"
T = TypeVar("T")


@dataclass(frozen=True)
class Work:
    """What is to be compared, as the leading process sees it."""

    reference: Path
    test: Path
    pairing: Pairing
    options: CompareOptions
    fleet: FleetOptions


def compare_launched(work: Work) -> Comparison:
    """Compare with one process per device, which this process starts, leads and outlives.

    Raises:
        UsageError: the journals belong to something else.
        KeyboardInterrupt: Ctrl-C, after the processes have been ended.
    """
    with (
        deferred_interrupt() as interrupt,
        Launcher(_work_launched, work.fleet.devices) as processes,
    ):
        channel = Channel(processes.store, _PREFIX)
        lead = _Lead(work, channel, processes.world, interrupt.check)
        return lead.run(processes.deaths, processes.kill, interrupt.check)


def compare_joined(
    make_work: Callable[[], Work], device: str, timeout: float, note: Note = say_nothing
) -> Comparison | None:
    """Take part in a comparison by the processes that `torchrun` started.

    Rank 0 leads, and works in a thread; the others work and return `None`.

    Args:
        make_work: called by rank 0 alone.
        device: `auto`, `cpu` or `cuda`.
        timeout: seconds after which a rank 0 that shows no sign of life is given up.
        note: called once with ranks for which this one has waited for some seconds.

    Raises:
        UsageError: the same in all processes.
        RankError: other ranks do not come, or rank 0 is stuck.
        KeyboardInterrupt: Ctrl-C.
    """
    fleet = connect(note)
    # First, so that a rank that fails below still counts as many runs as the others.
    channel = fleet.next_run(_PREFIX)
    own = torchrun_device(device)
    if fleet.rank > 0:
        patience = Patience(max(START_SECONDS, timeout), note)
        while not channel.add("leader", 0):
            patience.spend([0])
            time.sleep(POLL_SECONDS)
        _work(channel, fleet, own, timeout)
        return None
    channel.add("leader", 1)
    try:
        work = make_work()
        with deferred_interrupt() as interrupt:
            lead = _Lead(work, channel, fleet.world, interrupt.check, note)
            interrupt.check()
    except UsageError as error:
        channel.publish("plan", {"stop": str(error)})
        raise
    # A thread that is stuck must not keep this process from ending.
    threading.Thread(target=_work, args=(channel, fleet, own), daemon=True).start()
    with deferred_interrupt() as interrupt:
        return lead.run(tuple, lambda rank: None, interrupt.check)


def _work_launched(fleet: Fleet, device: str) -> None:
    # Without the launcher there is no store, and nobody to work for.
    with suppress(dist.DistError):
        _work(Channel(fleet.store, _PREFIX), fleet, device)


def _work(channel: Channel, fleet: Fleet, device: str, timeout: float = math.inf) -> None:
    """Compare what the leader hands out, until it says that all is done.

    Without a timeout the leader is not given up: it is this process, or the one that started it.
    """
    while (plan := channel.read("plan")) is None:
        time.sleep(POLL_SECONDS)
    if "stop" in plan:
        raise UsageError(plan["stop"])
    worker = Worker(channel, fleet.rank, fleet.world, timeout)
    try:
        _work_out(plan, worker, fleet, device)
    except (dist.DistError, RankError):  # nobody leads
        raise
    except Exception as error:  # whatever it is, others can do what this rank cannot
        worker.fail(error)
        for _ in worker.rounds():
            pass


def _work_out(plan: dict[str, Any], worker: Worker, fleet: Fleet, device: str) -> None:
    local_world = numeric_variable("LOCAL_WORLD_SIZE", fleet.world)
    torch.set_num_threads(cores_of_each(local_world))
    quiet_pillow()
    workers = plan["workers"] or cores_of_each(local_world)
    options = replace(documents.options_from(plan["options"]), device=device, workers=workers)
    pairs = [Pair(name, Path(first), Path(second)) for name, first, second in plan["pairs"]]
    places = {pair.name: item for item, pair in enumerate(pairs)}
    engine = make_engine(options)
    journal = None
    if plan["journals"] is not None:
        journal = Journal(Path(plan["journals"]), fleet.rank, plan["heading"])
    worker.ready(engine.device, engine.name, engine.busy)
    for items in worker.rounds():
        mine = (None if item is None else pairs[item] for item in items)
        with closing(compare_pairs(mine, options, engine)) as outcomes:
            for outcome in outcomes:
                _refuse_broken_device(outcome)
                item = places[outcome.pair.name]
                document = documents.outcome_document(outcome)
                if journal is not None:
                    journal.write(
                        {"name": outcome.pair.name, "stamp": plan["stamps"][item], **document}
                    )
                worker.settle(item, document)
    if journal is not None:
        journal.close()


def _refuse_broken_device(outcome: Outcome) -> None:
    """After most CUDA errors every call of the process fails: others must do the rest."""
    for problem in outcome.problems:
        if problem.kind == "internal" and "CUDA error" in problem.reason:
            # Without the error's type in front: `Worker.fail` will put this one's there.
            raise RuntimeError(problem.reason.partition(": ")[2])


@dataclass
class _Lead:
    """The leading process's part."""

    work: Work
    channel: Channel
    world: int
    checkpoint: InitVar[Callable[[], None]] = lambda: None
    note: Note = say_nothing
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    lost: list[Lost] = field(default_factory=list)

    def __post_init__(self, checkpoint: Callable[[], None]) -> None:
        work, pairs = self.work, self.work.pairing.pairs
        stamps = _of_each(documents.stamp, pairs, checkpoint)
        self.costs = [max(1, sum(stamp[::2])) for stamp in stamps]
        if work.fleet.schedule == "cost":
            self.costs = _of_each(pixels_of, pairs, checkpoint)
        heading = documents.journal_heading(work.reference, work.test, work.options)
        if work.fleet.journals is not None:
            self._restore(work.fleet.journals, heading, stamps)
        self.restored = frozenset(self.outcomes)
        journals = work.fleet.journals
        self.plan = {
            "options": documents.options_document(work.options),
            "pairs": [[pair.name, str(pair.reference), str(pair.test)] for pair in pairs],
            "stamps": stamps,
            "heading": heading,
            "workers": work.fleet.workers,
            "journals": None if journals is None else str(journals),
        }

    def _restore(
        self, journals: Path, heading: dict[str, Any], stamps: list[documents.Stamp]
    ) -> None:
        """Take rows from journals, for files that have not changed since."""
        known = dict(zip((pair.name for pair in self.work.pairing.pairs), stamps, strict=True))
        pairs = {pair.name: pair for pair in self.work.pairing.pairs}
        maps = self.work.options.maps
        try:
            for entry in read_journals(journals, heading):
                name = entry["name"]
                if entry["row"] is None or entry["problems"] or known.get(name) != entry["stamp"]:
                    continue
                if maps is None or map_file(maps, name).exists():
                    self.outcomes[name] = documents.outcome_from(entry, pairs[name])
        except (JournalError, OSError) as error:
            raise UsageError(f"--resume: {error}") from error
        except (KeyError, TypeError) as error:
            reason = f"an entry of a journal in {journals} is not of a known form ({error!r})"
            raise UsageError(f"--resume: {reason}; use a new folder") from error

    def run(
        self,
        deaths: Callable[[], Iterable[tuple[int, str]]],
        give_up: Callable[[int], None],
        checkpoint: Callable[[], None],
    ) -> Comparison:
        pairs, fleet = self.work.pairing.pairs, self.work.fleet
        patience = Patience(math.inf, self.note)

        def look_around() -> None:
            checkpoint()
            if coordinator.awaited:
                patience.spend(coordinator.awaited)

        coordinator = Coordinator(
            self.channel,
            self.world,
            self.costs,
            schedule=fleet.schedule,
            timeout=fleet.timeout,
            deaths=deaths,
            give_up=give_up,
            checkpoint=look_around,
        )
        self.channel.publish("plan", self.plan)
        todo = [item for item, pair in enumerate(pairs) if pair.name not in self.outcomes]
        with FleetProgress(len(todo), self.world) as progress:
            for event in coordinator.run(todo):
                if isinstance(event, Settled):
                    pair = pairs[event.item]
                    self.outcomes[pair.name] = documents.outcome_sent(event.outcome, pair)
                    progress.advance(event.rank)
                else:
                    self.lost.append(event)
        coordinator.end()
        statistics = replace(
            coordinator.statistics(restored=len(self.restored)),
            schedule=SCHEDULE_NAMES[fleet.schedule],
        )
        done = [self.outcomes[pair.name] for pair in pairs if pair.name in self.outcomes]
        problems = [problem for outcome in done for problem in outcome.problems]
        problems += problems_of_unfinished(coordinator.unfinished, pairs)
        problems += [problem_of_loss(event, coordinator.unfinished) for event in self.lost]
        reports = [each.report for each in statistics.ranks]
        names = sorted({each.device_name for each in reports if each.device_name})
        return Comparison(
            reference=str(self.work.reference),
            test=str(self.work.test),
            options=self.work.options,
            device=",".join(sorted({each.device for each in reports if each.device})),
            device_name=f"{self.world} x {' and '.join(names) or 'no device'}",
            rows=[outcome.row for outcome in done if outcome.row is not None],
            problems=self.work.pairing.problems + problems,
            seconds=statistics.seconds,
            ignored=self.work.pairing.ignored,
            fleet=statistics,
            restored=self.restored,
        )


def _of_each(
    function: Callable[[Pair], T], pairs: Sequence[Pair], checkpoint: Callable[[], None]
) -> list[T]:
    """A function's results for all pairs, from several threads; `checkpoint` may raise."""
    pool = ThreadPoolExecutor(available_cores())
    found: list[T] = []
    try:
        for each in pool.map(function, pairs):
            checkpoint()
            found.append(each)
    finally:
        pool.shutdown(cancel_futures=True)
    return found
