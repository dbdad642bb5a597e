"""Runs a comparison: threads decode, batches form by picture size, a device measures them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

from torch import Tensor

from syncfree.cli.compare.budget import Budget
from syncfree.cli.compare.engine import Engine, Submitted, make_engine
from syncfree.cli.compare.images import Layout, PicturePair, load_pair
from syncfree.cli.compare.maps import map_file, write_map
from syncfree.cli.compare.options import METRICS, CompareOptions
from syncfree.cli.compare.pairs import Pair
from syncfree.cli.compare.problems import PictureError, Problem
from syncfree.cli.compare.report import ImageRow
from syncfree.cli.compare.stages import DECODE, MAPS, Stages
from syncfree.distributed.flight import BATCHES_IN_FLIGHT, Flight

_AHEAD_PER_WORKER = 3
_DECODED_BYTES = 2 << 30  # decoded ahead of the batches
_GROUPED_BYTES = 512 << 20  # waiting in batches that are not full
_GROUPED_BATCHES = 4  # pictures for so many may wait in these, so that results keep coming
_BATCH_BYTES = 256 << 20


@dataclass(frozen=True)
class Outcome:
    """The result of a pair: its row, and problems that left it without a row or without a map."""

    pair: Pair
    row: ImageRow | None
    problems: tuple[Problem, ...] = ()


def compare_pairs(
    pairs: Iterable[Pair | None],
    options: CompareOptions,
    engine: Engine | None = None,
    checkpoint: Callable[[], None] = lambda: None,
) -> Generator[Outcome, None, None]:
    """Compare pairs of pictures.

    Decoding runs in `options.workers` threads, a few pairs ahead of the device; the memory held is
    bounded. Close the iterator (or let it end) to stop the threads.

    Args:
        pairs: the files, see `find_pairs`; taken one by one, as threads become free. At None, the
            pairs that are held are submitted before more are taken.
        options: what to measure, and how.
        engine: where to measure; default `make_engine(options)`.
        checkpoint: called once per pair; what it raises stops the threads and comes out here.

    Yields:
        One `Outcome` per pair, in the order in which they are done.

    Raises:
        UsageError: the device does not exist.
    """
    engine = engine or make_engine(options)
    load = partial(_load, options=options, engine=engine)
    pool = ThreadPoolExecutor(options.workers, thread_name_prefix="syncfree-compare")
    # A second pool: threads that wait for room to decode must not delay maps that are waited for.
    writers = ThreadPoolExecutor(options.workers, thread_name_prefix="syncfree-maps")
    budget = Budget(_DECODED_BYTES)
    try:
        decoded = _decoded(pairs, options.workers, load, pool, budget, checkpoint)
        writes: deque[_Write] = deque()
        batches = _batches(decoded, options, engine.batch_bytes)
        for done in _measured(batches, engine):
            if done is None:
                while writes:
                    yield _finish_write(writes.popleft())
            elif isinstance(done, Outcome):
                yield done
            elif options.maps is None:
                outcomes = list(_outcomes(done, options))
                done.release()
                yield from outcomes
            else:
                writes.extend(_write_maps(done, options, options.maps, writers, engine.stages))
                while len(writes) > options.workers * _AHEAD_PER_WORKER:
                    yield _finish_write(writes.popleft())
        for write in writes:
            checkpoint()
            yield _finish_write(write)
    finally:
        budget.close()
        for threads in (pool, writers):
            threads.shutdown(wait=True, cancel_futures=True)


def _load(
    pair: Pair, reserve: Callable[[int], None], options: CompareOptions, engine: Engine
) -> PicturePair:
    with engine.stages.on_host(DECODE):
        return load_pair(pair, options, engine.buffers, reserve)


def _decoded(
    pairs: Iterable[Pair | None],
    workers: int,
    load: Callable[[Pair, Callable[[int], None]], PicturePair],
    pool: Executor,
    budget: Budget,
    checkpoint: Callable[[], None],
) -> Iterator[PicturePair | Outcome | None]:
    """Decoded pairs in order, a few of them ahead, within the budget; None where `pairs` has it."""
    source = enumerate(pairs)
    waiting: deque[tuple[int, Pair, Future[PicturePair]]] = deque()
    is_paused = False
    while True:
        checkpoint()
        free = 0 if is_paused else workers * _AHEAD_PER_WORKER - len(waiting)
        for number, pair in islice(source, free):
            if pair is None:
                is_paused = True
                break
            waiting.append((number, pair, pool.submit(load, pair, partial(budget.reserve, number))))
        if not waiting:
            if not is_paused:
                return
            is_paused = False
            yield None
            continue
        number, pair, future = waiting.popleft()
        budget.turn(number)
        try:
            try:
                pictures = future.result()
            finally:
                budget.release(number)
        except PictureError as error:
            yield Outcome(pair, None, error.problems)
        except Exception as error:  # a defect must cost one pair, not the run
            yield _failed(pair, error)
        else:
            yield pictures


def _failed(pair: Pair, error: Exception) -> Outcome:
    files = (str(pair.reference), str(pair.test))
    problem = Problem("internal", files, f"{type(error).__name__}: {error}")
    return Outcome(pair, None, (problem,))


def _batches(
    decoded: Iterable[PicturePair | Outcome | None],
    options: CompareOptions,
    most_bytes: int | None = None,
) -> Iterator[list[PicturePair] | Outcome | None]:
    """Batches of pictures of one layout, each as soon as it is full, and before a None.

    Outcomes and None pass through.
    """
    batch_bytes = _BATCH_BYTES if most_bytes is None else min(_BATCH_BYTES, most_bytes)
    groups: dict[Layout, list[PicturePair]] = {}
    held, waiting = 0, 0
    for picture in decoded:
        if picture is None:
            yield from groups.values()
            groups, held, waiting = {}, 0, 0
        if picture is None or isinstance(picture, Outcome):
            yield picture
            continue
        group = groups.setdefault(picture.layout, [])
        group.append(picture)
        held += picture.bytes
        waiting += 1
        if len(group) >= min(options.batch, max(1, batch_bytes // picture.bytes)):
            full = picture.layout
        elif held > _GROUPED_BYTES or waiting >= _GROUPED_BATCHES * options.batch:
            full = max(groups, key=lambda layout: len(groups[layout]) * groups[layout][0].bytes)
        else:
            continue
        batch = groups.pop(full)
        held -= sum(each.bytes for each in batch)
        waiting -= len(batch)
        yield batch
    yield from groups.values()


def _measured(
    batches: Iterable[list[PicturePair] | Outcome | None], engine: Engine
) -> Iterator[Submitted | Outcome | None]:
    """Batches with their results, a few behind the submission, so that a GPU stays busy.

    Before a None, all but the latest land.
    """
    # On a CPU each batch lands at once: a process that is killed later must not lose it.
    depth = max(BATCHES_IN_FLIGHT, engine.streams) if engine.streams else 0
    flight = Flight[PicturePair, Submitted](engine.submit, depth)
    for batch in batches:
        if batch is None:
            yield from flight.land_all(but=1)
        if batch is None or isinstance(batch, Outcome):
            yield batch
            continue
        for done in flight.send(batch):
            if isinstance(done, Submitted):
                yield done
                continue
            pictures, error = done
            for picture in pictures:
                picture.memory.release()
                yield _failed(picture.pair, error)
    yield from flight.land_all()


def _outcomes(done: Submitted, options: CompareOptions) -> Iterator[Outcome]:
    layout = done.pictures[0].layout
    for picture, values in zip(done.pictures, done.values.T.tolist(), strict=True):
        found = dict(zip(METRICS, values, strict=True))
        if any(math.isnan(found[name]) for name in options.metrics):
            yield _failed(picture.pair, ArithmeticError(f"a metric is not a number: {found}"))
            continue
        row = ImageRow(
            name=picture.pair.name,
            reference=str(picture.pair.reference),
            test=str(picture.pair.test),
            width=layout.width,
            height=layout.height,
            color=layout.color,
            data_range=layout.data_range,
            psnr=found["psnr"],
            ssim=found["ssim"],
            mae=found["mae"],
        )
        yield Outcome(picture.pair, row)


@dataclass(frozen=True)
class _Write:
    """A map that a thread writes; the last one of a batch releases the memory of its maps."""

    outcome: Outcome
    path: Path
    future: Future[None]
    batch: Submitted
    is_last: bool


def _write_maps(
    done: Submitted, options: CompareOptions, folder: Path, pool: Executor, stages: Stages
) -> Iterator[_Write]:
    maps: Tensor | None = done.maps
    assert maps is not None

    def write(ssim_map: Tensor, path: Path) -> None:
        with stages.on_host(MAPS):
            write_map(ssim_map.numpy(), path)

    for outcome, ssim_map in zip(_outcomes(done, options), maps, strict=True):
        path = map_file(folder, outcome.pair.name)
        future = pool.submit(write, ssim_map, path)
        is_last = outcome.pair is done.pictures[-1].pair
        yield _Write(outcome, path, future, done, is_last)


def _finish_write(write: _Write) -> Outcome:
    """The outcome, once its map is on disk: a process that dies before has not done the pair."""
    outcome, path = write.outcome, write.path
    try:
        write.future.result()
    except OSError as error:
        problem = Problem("unwritable", (str(path),), error.strerror or str(error))
    except Exception as error:  # a defect must cost one map, not the run
        problem = Problem("internal", (str(path),), f"{type(error).__name__}: {error}")
    else:
        return outcome
    finally:
        if write.is_last:  # and those before are on disk too
            write.batch.release()
    return replace(outcome, problems=(*outcome.problems, problem))
