"""Runs a comparison in this process, on one device."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

from syncfree.cli.compare.engine import make_engine
from syncfree.cli.compare.options import CompareOptions
from syncfree.cli.compare.pairs import Pairing
from syncfree.cli.compare.pipeline import compare_pairs
from syncfree.cli.compare.problems import Problem
from syncfree.cli.compare.profile import make_profile
from syncfree.cli.compare.report import Comparison, ImageRow
from syncfree.cli.compare.stages import StageClock, Stages
from syncfree.cli.compare.tables import make_progress
from syncfree.cli.interrupt import deferred_interrupt


def compare_alone(
    reference: Path, test: Path, pairing: Pairing, options: CompareOptions, *, profile: bool = False
) -> Comparison:
    """Compare all pairs, with a progress bar.

    Args:
        reference: folder or file, as it was given.
        test: folder or file, as it was given.
        pairing: what was found there.
        options: what to measure, and how.
        profile: time each stage, too.

    Raises:
        UsageError: the device does not exist.
        KeyboardInterrupt: Ctrl-C, after the threads have stopped.
    """
    engine = make_engine(options)
    rows: dict[str, ImageRow] = {}
    problems: list[Problem] = []
    clock = StageClock(engine.device) if profile else None
    engine.stages = clock or Stages()
    begin = time.perf_counter()
    with (
        deferred_interrupt() as interrupt,
        closing(compare_pairs(pairing.pairs, options, engine, interrupt.check)) as outcomes,
        make_progress() as bar,
    ):
        task = bar.add_task("comparing", total=len(pairing.pairs))
        for outcome in outcomes:
            if outcome.row is not None:
                rows[outcome.pair.name] = outcome.row
            problems += outcome.problems
            bar.advance(task)
        interrupt.check()
    end = time.perf_counter()
    found = None
    if clock is not None:
        found = make_profile(
            clock.spans(),
            begin=begin,
            end=end,
            threads=options.workers,
            streams=engine.streams,
            dtype=options.dtype,
            reuse=(engine.buffers.reuse, engine.scratch),
            notes=clock.notes,
        )
    return Comparison(
        reference=str(reference),
        test=str(test),
        options=options,
        device=str(engine.device),
        device_name=engine.name,
        rows=[rows[pair.name] for pair in pairing.pairs if pair.name in rows],
        problems=pairing.problems + problems,
        seconds=end - begin,
        ignored=pairing.ignored,
        profile=found,
    )
