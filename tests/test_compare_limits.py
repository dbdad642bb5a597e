"""`syncfree compare`: bounds of memory, pipes, Ctrl-C, and runs that lose ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace

import pytest
import torch
import torch.distributed as dist

from comparing import Folders, picture, save
from syncfree.cli import main
from syncfree.cli.compare import documents, fleet, pipeline, scaling
from syncfree.cli.compare.engine import make_engine
from syncfree.cli.compare.fleet import Work, _of_each
from syncfree.cli.compare.fleet_options import FleetOptions
from syncfree.cli.compare.images import pixels_of
from syncfree.cli.compare.options import CompareOptions
from syncfree.cli.compare.pairs import Pair, Pairing, find_pairs
from syncfree.cli.compare.problems import Problem
from syncfree.cli.compare.report import Comparison
from syncfree.distributed import coordinator
from syncfree.distributed.channel import Channel, Mailbox
from syncfree.distributed.fleet import Fleet
from syncfree.distributed.statistics import RankReport, compare_ranks


@pytest.fixture
def folders(tmp_path):
    return Folders(tmp_path)


# Memory


def test_large_pictures_after_small_ones_keep_to_the_limit(folders, monkeypatch):
    """Small ones say nothing of how many large ones fit."""
    large = picture(0, 400, 500)
    for index in range(60):
        folders.add(f"{index:02}.bmp", *[picture(0) if index < 30 else large] * 2)
    pair_bytes = 2 * large.nbytes
    monkeypatch.setattr(pipeline, "_DECODED_BYTES", 2 * pair_bytes)
    monkeypatch.setattr(pipeline, "_BATCH_BYTES", 1)
    options = CompareOptions(device="cpu", workers=8, metrics=("psnr",))
    engine = make_engine(options)
    pairs = find_pairs(folders.ref, folders.test).pairs
    for number, outcome in enumerate(pipeline.compare_pairs(pairs, options, engine)):
        assert outcome.row is not None
        time.sleep(0.01 if number > 25 else 0)  # slower than decoding
    # The two, the one that is waited for, and the batches under way.
    assert engine.buffers.reuse.bytes < 9 * pair_bytes


def test_maps_are_written_while_threads_wait_for_room(folders, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(pipeline, "_DECODED_BYTES", 1)
    monkeypatch.setattr(pipeline, "_BATCH_BYTES", 1)
    for index in range(30):
        folders.add(f"{index:02}.png", picture(index), picture(index + 1))
    status, _ = folders.compare("--maps", tmp_path / "maps", "--workers", 2)
    assert status == 0
    assert len(list((tmp_path / "maps").iterdir())) == 30


def test_an_early_end_leaves_no_thread_that_waits_for_room(folders, monkeypatch):
    monkeypatch.setattr(pipeline, "_DECODED_BYTES", 1)
    for index in range(10):
        folders.add(f"{index}.png", picture(0), picture(1))
    options = CompareOptions(device="cpu", workers=4, batch=1)
    outcomes = pipeline.compare_pairs(find_pairs(folders.ref, folders.test).pairs, options)
    next(outcomes)
    outcomes.close()
    assert not [each for each in threading.enumerate() if each.name.startswith("syncfree-")]


# What the leader looks at before it hands out work


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    save(tmp_path / "b.png", picture(0, 20, 30))
    found = [pixels_of(Pair(name, tmp_path / name, tmp_path / name)) for name in ("a.png", "b.png")]
    assert found == [1, 600]


def test_ctrl_c_ends_the_look_at_files():
    seen = []

    def look(pair):
        seen.append(pair)
        # Many threads go far before a busy machine lets the one that asks have its turn.
        time.sleep(0.01 if pair < 100 else 0.5)

    def interrupted():
        if len(seen) > 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _of_each(look, range(10_000), interrupted)
    assert len(seen) < 1000


def test_ctrl_c_that_comes_last_is_not_lost(monkeypatch, interruptible):
    class Interrupted:
        def __init__(self, *_):
            os.kill(os.getpid(), signal.SIGINT)

        def run(self, *_):
            return "compared"

    monkeypatch.setattr(fleet, "_Lead", Interrupted)
    monkeypatch.setattr(fleet, "_work", lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        fleet.compare_joined(lambda: None, "cpu", 60)


# One rank, and ranks that are lost


def test_a_rank_compares_what_it_holds_before_it_claims_more(folders, monkeypatch):
    """Or one that decodes fast would claim all of a short list."""
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    for index in range(6):  # of shapes that make no full batch
        folders.add(f"{index}.png", *[picture(index, 24, 32 + index)] * 2)
    settled, asked = [], []

    class Claiming:
        def ready(self, *_):
            pass

        def rounds(self):
            yield self.claimed()

        def claimed(self):
            yield from range(4)
            yield None
            asked.append(sorted(settled))
            yield from (4, 5)
            yield None

        def settle(self, item, outcome):
            settled.append(item)

    lead = fleet._Lead(work_on(folders), Channel(dist.HashStore(), "x"), 1)
    fleet._work_out(lead.plan, Claiming(), Fleet(dist.HashStore(), 0, 1), "cpu")
    assert asked == [[0, 1, 2, 3]]
    assert sorted(settled) == list(range(6))


def test_maps_are_written_before_a_rank_claims_more(folders, tmp_path):
    pytest.importorskip("matplotlib")
    for index in range(3):
        folders.add(f"{index}.png", *[picture(index)] * 2)
    pairs = find_pairs(folders.ref, folders.test).pairs
    done, asked = [], []

    def claimed():
        yield from pairs[:2]
        yield None
        asked.append(len(done))
        yield pairs[2]

    options = CompareOptions(device="cpu", maps=tmp_path / "maps")
    for outcome in pipeline.compare_pairs(claimed(), options):
        done.append(outcome)
    assert asked == [2]
    assert len(done) == 3


def work_on(folders, world=1):
    options = FleetOptions(("cpu",) * world, "dynamic", 300)
    pairing = find_pairs(folders.ref, folders.test)
    return Work(folders.ref, folders.test, pairing, CompareOptions(device="cpu"), options)


def test_lost_ranks_tell_how_many_of_their_images_others_compared(folders, monkeypatch):
    """Rank 1 dies with an image that rank 0 died with, so nobody compares it."""
    monkeypatch.setattr(coordinator, "_GOODBYE_SECONDS", 0)
    for index in range(3):
        folders.add(f"{index}.png", *[picture(index)] * 2)
    work, channel = work_on(folders, 3), Channel(dist.HashStore(), "x")
    outcomes = [
        documents.outcome_document(outcome)
        for outcome in pipeline.compare_pairs(work.pairing.pairs, work.options)
    ]
    claims = {0: [0, 1, 2], 1: [0]}
    for rank in range(3):
        box, about = Mailbox(channel, f"rank/{rank}"), asdict(RankReport(rank, "cpu", "CPU", "x"))
        box.post({"ready": about})
        if rank in claims:
            box.post({"claimed": claims[rank]})
            box.post({"failed": "died"})
        else:
            box.post({"done": [[1, outcomes[1]], [2, outcomes[2]]], "report": about})
    found = fleet._Lead(work, channel, 3).run(tuple, lambda rank: None, lambda: None)
    assert [row.name for row in found.rows] == ["1.png", "2.png"]
    assert [(problem.kind, problem.reason) for problem in found.problems] == [
        ("unfinished", "not compared: 2 ranks were lost while they had it"),
        ("rank-lost", "rank 0: died; 2 of its images were compared by others"),
        ("rank-lost", "rank 1: died"),
    ]


# Several runs


def test_problems_of_every_run_are_told_and_make_no_point(folders, monkeypatch):
    lost = Problem("rank-lost", (), "rank 1: killed by SIGKILL")
    troubles = iter([[], [lost], [], []])  # the run that is not counted, then 1, 2 and 4

    def launched(work):
        count = len(work.fleet.devices)
        reports = [RankReport(rank, "cpu", "CPU", "host") for rank in range(count)]
        fleet = compare_ranks(reports, 1.0, schedule="dynamic")
        return Comparison(
            "ref", "test", work.options, "cpu", "CPU", [], next(troubles), 8.0 / count, fleet=fleet
        )

    monkeypatch.setattr(scaling, "compare_launched", launched)
    options = FleetOptions(("cpu",) * 4, "dynamic", 300)
    work = Work(folders.ref, folders.test, Pairing(), CompareOptions(device="cpu"), options)
    found = scaling.compare_scaling(work, (1, 2, 4))
    assert [(point.processes, point.speedup) for point in found.scaling] == [(2, 2.0), (4, 4.0)]
    reason = "in a run with 1 process: rank 1: killed by SIGKILL"
    assert found.problems == [replace(lost, reason=reason)]


# Ctrl-C before anything has begun

EARLY = """
import os, signal, sys
from syncfree.cli import main

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupts())
sys.exit(main(["compare", "a", "b"]))
"""


@pytest.mark.parametrize("module", ["typer", "syncfree.cli.app", "syncfree.cli.compare.command"])
def test_ctrl_c_while_the_command_is_imported(module):
    command = [sys.executable, "-c", EARLY, module]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr


# Files that are not looked at


def test_files_without_an_extension_are_counted_together(folders, capsys):
    folders.add_good()
    for index in range(30):
        (folders.ref / f"note{index}").touch()
    (folders.test / "x.gif").touch()
    assert main(["compare", str(folders.ref), str(folders.test)]) == 0
    error = capsys.readouterr().err
    assert "not compared, other extensions: (no extension) (30), .gif (1)" in error
