"""Runs a comparison: threads decode, batches form by picture size, a device measures them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path

from torch import Tensor

from syncfree.cli.compare.engine import Engine, Submitted, make_engine
from syncfree.cli.compare.images import Layout, PicturePair, load_pair
from syncfree.cli.compare.maps import map_file, write_map
from syncfree.cli.compare.options import METRICS, CompareOptions
from syncfree.cli.compare.pairs import Pair
from syncfree.cli.compare.problems import PictureError, Problem
from syncfree.cli.compare.report import ImageRow

_AHEAD_PER_WORKER = 3
_DECODED_BYTES = 2 << 30  # decoded ahead of the batches
_GROUPED_BYTES = 512 << 20  # waiting in batches that are not full
_BATCH_BYTES = 256 << 20
_BATCHES_IN_FLIGHT = 3


def compare_pairs(
    pairs: Sequence[Pair],
    options: CompareOptions,
    engine: Engine | None = None,
    checkpoint: Callable[[], None] = lambda: None,
) -> Generator[ImageRow | Problem, None, None]:
    """Compare pairs of pictures.

    Decoding runs in `options.workers` threads, a few pairs ahead of the device; the memory held is
    bounded. Close the iterator (or let it end) to stop the threads.

    Args:
        pairs: the files, see `find_pairs`.
        options: what to measure, and how.
        engine: where to measure; default `make_engine(options)`.
        checkpoint: called once per pair; what it raises stops the threads and comes out here.

    Yields:
        An `ImageRow` or the problems of each pair, in the order in which they are done; and a
        `Problem` for each map that could not be written.

    Raises:
        UsageError: the device does not exist.
    """
    engine = engine or make_engine(options)
    pool = ThreadPoolExecutor(options.workers, thread_name_prefix="syncfree-compare")
    try:
        decoded = _decoded(pairs, options, engine, pool, checkpoint)
        writes: deque[tuple[Path, Future[None]]] = deque()
        for done in _measured(_batches(decoded, options), engine):
            if isinstance(done, Problem):
                yield done
                continue
            yield from _rows(done, options)
            writes.extend(_write_maps(done, options, pool))
            while len(writes) > options.workers * _AHEAD_PER_WORKER:
                yield from _finish_write(*writes.popleft())
        for path, write in writes:
            checkpoint()
            yield from _finish_write(path, write)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _decoded(
    pairs: Iterable[Pair],
    options: CompareOptions,
    engine: Engine,
    pool: Executor,
    checkpoint: Callable[[], None],
) -> Iterator[PicturePair | Problem]:
    """Decoded pairs in order. How many are decoded ahead follows from the largest pair so far."""
    source = iter(pairs)
    waiting: deque[tuple[Pair, Future[PicturePair]]] = deque()
    most, ahead = options.workers * _AHEAD_PER_WORKER, options.workers
    largest = 0
    while True:
        checkpoint()
        for pair in islice(source, max(0, ahead - len(waiting))):
            waiting.append((pair, pool.submit(load_pair, pair, options, pinned=engine.pinned)))
        if not waiting:
            return
        pair, future = waiting.popleft()
        try:
            pictures = future.result()
        except PictureError as error:
            yield from error.problems
        except Exception as error:  # a defect must cost one pair, not the run
            yield _internal(pair, error)
        else:
            largest = max(largest, pictures.bytes)
            ahead = max(1, min(most, _DECODED_BYTES // largest))
            yield pictures


def _internal(pair: Pair, error: Exception) -> Problem:
    files = (str(pair.reference), str(pair.test))
    return Problem("internal", files, f"{type(error).__name__}: {error}")


def _batches(
    decoded: Iterable[PicturePair | Problem], options: CompareOptions
) -> Iterator[list[PicturePair] | Problem]:
    """Groups of pictures of one layout, full ones as soon as they are; problems pass through."""
    groups: dict[Layout, list[PicturePair]] = {}
    held = 0
    for picture in decoded:
        if isinstance(picture, Problem):
            yield picture
            continue
        group = groups.setdefault(picture.layout, [])
        group.append(picture)
        held += picture.bytes
        if len(group) >= min(options.batch, max(1, _BATCH_BYTES // picture.bytes)):
            full = picture.layout
        elif held > _GROUPED_BYTES:
            full = max(groups, key=lambda layout: len(groups[layout]) * groups[layout][0].bytes)
        else:
            continue
        batch = groups.pop(full)
        held -= sum(each.bytes for each in batch)
        yield batch
    yield from groups.values()


def _measured(
    batches: Iterable[list[PicturePair] | Problem], engine: Engine
) -> Iterator[Submitted | Problem]:
    """Batches with their results, a few behind the submission, so that the device stays busy."""
    flying: deque[Submitted] = deque()
    for batch in batches:
        if isinstance(batch, Problem):
            yield batch
            continue
        try:
            flying.append(engine.submit(batch))
        except (RuntimeError, ValueError) as error:  # out of memory, say: costs this batch alone
            for picture in batch:
                yield _internal(picture.pair, error)
        if len(flying) > _BATCHES_IN_FLIGHT:
            yield _landed(flying.popleft())
    while flying:
        yield _landed(flying.popleft())


def _landed(submitted: Submitted) -> Submitted:
    submitted.wait()
    return submitted


def _rows(done: Submitted, options: CompareOptions) -> Iterator[ImageRow | Problem]:
    layout = done.pictures[0].layout
    for picture, values in zip(done.pictures, done.values.T.tolist(), strict=True):
        found = dict(zip(METRICS, values, strict=True))
        if any(math.isnan(found[name]) for name in options.metrics):
            yield _internal(picture.pair, ArithmeticError(f"a metric is not a number: {found}"))
            continue
        yield ImageRow(
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


def _write_maps(
    done: Submitted, options: CompareOptions, pool: Executor
) -> Iterator[tuple[Path, Future[None]]]:
    if done.maps is None or options.maps is None:
        return
    maps: Tensor = done.maps
    for picture, ssim_map in zip(done.pictures, maps, strict=True):
        path = map_file(options.maps, picture.pair.name)
        yield path, pool.submit(write_map, ssim_map.numpy(), path)


def _finish_write(path: Path, write: Future[None]) -> Iterator[Problem]:
    try:
        write.result()
    except OSError as error:
        yield Problem("unwritable", (str(path),), error.strerror or str(error))
    except Exception as error:  # as above
        yield Problem("internal", (str(path),), f"{type(error).__name__}: {error}")
