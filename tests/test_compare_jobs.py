"""Several runs in one job of `torchrun`, and processes that the environment promises in vain."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from comparing import Folders, distorted, picture, save
from fleet_cases import PATIENCE, run
from syncfree.cli.compare import documents, fleet
from syncfree.cli.compare.fleet_options import parse_gpus, torchrun_device
from syncfree.cli.compare.options import CompareOptions, LocalUsageError
from syncfree.cli.compare.pairs import find_pairs
from syncfree.cli.compare.pipeline import compare_pairs
from syncfree.distributed import Fleet, coordinator, rendezvous


@pytest.fixture
def folders(tmp_path):
    made = Folders(tmp_path)
    for index in range(24):
        a = picture(index)
        made.add(f"{index}.png", a, distorted(a, index))
        save(tmp_path / "other" / f"{index}.png", distorted(a, index, strength=40))
    return made


@pytest.fixture
def member(monkeypatch):
    """Sets what a launcher sets; the launcher's store is here if there is one."""

    def be(rank, world, port):
        variables = {"RANK": rank, "WORLD_SIZE": world, "MASTER_PORT": port}
        for name, value in {**variables, "MASTER_ADDR": "127.0.0.1"}.items():
            monkeypatch.setenv(name, str(value))

    return be


@pytest.fixture
def agent(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


# Runs one after the other


TWO_RUNS = """
import sys
from syncfree.cli import main
reference, *tests = sys.argv[1:]
for test in tests:
    options = ["--device", "cpu", "--workers", "1", "--json", test + ".json"]
    main(["compare", reference, test, *options])
"""


def test_each_run_of_a_job_has_its_own_numbers(folders, tmp_path):
    """Rank 1 would find the plan of the first run, and do its work again."""
    tests = [folders.test, tmp_path / "other"]
    (tmp_path / "two.py").write_text(TWO_RUNS)
    done = run(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2,
                tmp_path / "two.py", folders.ref, *tests])  # fmt: skip
    assert done.returncode == 0, done.stderr
    for test in tests:
        _, truth = folders.compare("--device", "cpu", paths=(folders.ref, test))
        report = json.loads(test.with_suffix(".json").read_text())
        assert report["images"] == truth["images"]
        assert report["fleet"]["reissued"] == 0
        assert report["problems"] == []


SCRIPT = """
from torch import ones, zeros
from syncfree.distributed import DynamicSampler, evaluate
data = [(zeros(1, 4, 4), index * ones(1, 4, 4)) for index in range(4)]
found = evaluate(lambda x: x, data, {"mean": lambda p, t: t.mean((1, 2, 3))}, device="cpu")
print(len(list(DynamicSampler(10))), found.values["mean"].tolist(), found.statistics.reissued)
"""


def test_samplers_and_evaluations_of_a_later_script_get_all(member, agent):
    member(0, 1, agent.port)
    for _ in range(2):
        done = run(["-c", SCRIPT])
        assert done.stdout == "10 [0.0, 1.0, 2.0, 3.0] 0\n", done.stderr


def test_ranks_count_their_runs_alike():
    store = dist.HashStore()
    first, second = Fleet(store, 0, 2), Fleet(store, 1, 2)
    first.next_run("x").publish("name", 1)
    assert first.next_run("x").read("name") is None
    assert second.next_run("x").read("name") == 1
    assert second.next_run("y").read("name") is None


def outcome_of(folders):
    (pair, *_) = find_pairs(folders.ref, folders.test).pairs
    (outcome,) = compare_pairs([pair], CompareOptions(device="cpu"))
    return pair, documents.outcome_document(outcome)


def test_a_row_of_other_files_is_not_taken(folders):
    pair, document = outcome_of(folders)
    assert documents.outcome_sent(document, pair).row is not None
    wrong = replace(pair, test=folders.ref.parent / "other" / pair.name)
    outcome = documents.outcome_sent(document, wrong)
    assert outcome.row is None
    assert outcome.problems[0].kind == "internal"
    assert str(pair.test) in outcome.problems[0].reason


def test_rows_of_a_journal_get_the_paths_of_today(folders, monkeypatch):
    pair, document = outcome_of(folders)
    monkeypatch.chdir(folders.ref.parent)
    today = find_pairs(folders.ref.relative_to(Path.cwd()), folders.test).pairs[0]
    row = documents.outcome_from(document, today).row
    assert (row.reference, row.test) == (f"ref/{pair.name}", str(folders.test / pair.name))


# The GPU of a process that somebody else has started


@pytest.mark.parametrize(
    ("gpus", "local_rank", "wanted", "expected"),
    [
        (4, 2, "auto", "cuda:2"),
        (4, 2, "cuda", "cuda:2"),
        (1, 3, "cuda", "cuda:0"),  # as srun --gpus-per-task=1 has it: each task sees its own
        (1, 3, "auto", "cuda:0"),
        (0, 3, "auto", "cpu"),
        (4, 2, "cpu", "cpu"),
    ],
)
def test_each_process_has_a_gpu_of_its_own(monkeypatch, gpus, local_rank, wanted, expected):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setenv("LOCAL_RANK", str(local_rank))
    assert torchrun_device(wanted) == expected


@pytest.mark.parametrize("gpus", [0, 2])
def test_more_processes_than_gpus_are_refused(monkeypatch, gpus):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(LocalUsageError, match=f"local rank 2 has no GPU .* there are {gpus};"):
        torchrun_device("cuda")


def test_processes_are_counted_where_the_system_binds_none_to_cores(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    assert parse_gpus("cpu:2") == ("cpu", "cpu")


# Processes that do not come


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(rendezvous, "STORE_TIMEOUT", timedelta(seconds=1))
    monkeypatch.setattr(rendezvous, "_NOTE_SECONDS", 0.1)
    monkeypatch.setattr(fleet, "START_SECONDS", 1.0)
    monkeypatch.setattr(coordinator, "START_SECONDS", 1.0)


@pytest.mark.parametrize(
    ("rank", "missing", "reason"),
    [(0, "ranks 1, 2", "rank 1: did not come within 1 s; rank 2: did not come"),
     (1, "rank 0", "rank 0: opened no store at 127.0.0.1:{port} within 1 s")],
)  # fmt: skip
def test_a_rendezvous_ends(folders, member, impatient, capsys, rank, missing, reason):
    port = free_port()
    member(rank, 3, port)
    assert folders.compare("--device", "cpu") == (1, None)
    error = capsys.readouterr().err
    assert f"waiting for {missing}: RANK and WORLD_SIZE say" in error
    assert "--alone compares in it alone" in error
    assert reason.format(port=port) in error


def test_a_leader_that_never_comes_is_given_up(folders, member, agent, impatient, capsys):
    member(1, 2, agent.port)
    assert folders.compare("--device", "cpu", "--timeout", "1") == (1, None)
    error = capsys.readouterr().err
    assert "waiting for rank 0" in error
    assert "rank 0: did not come within 1 s" in error


def test_a_leader_tells_of_whom_it_waits_for(folders, member, agent, impatient, capsys):
    member(0, 2, agent.port)
    status, report = folders.compare("--device", "cpu", "--timeout", "1")
    assert status == 1
    assert len(report["images"]) == 24
    assert "waiting for rank 1" in capsys.readouterr().err


def test_alone_joins_nobody(folders, member):
    member(1, 2, 1)
    status, report = folders.compare("--device", "cpu", "--alone")
    assert status == 0
    assert len(report["images"]) == 24
    assert "fleet" not in report


WAITS = """
import signal, sys
from syncfree.cli import main
from syncfree.distributed import rendezvous
rendezvous._NOTE_SECONDS = 0.1
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main(["compare", *sys.argv[1:], "--device", "cpu"]))
"""


def test_processes_meet_without_an_agent(member):
    """As in pods; the later one may be the one that holds the store."""
    port = free_port()
    running = []
    for rank in (1, 0):
        member(rank, 2, port)
        command = [sys.executable, "-c", SCRIPT]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    said = [each.communicate(timeout=PATIENCE)[0].split(maxsplit=1) for each in running]
    assert [each.returncode for each in running] == [0, 0]
    assert sum(int(count) for count, _ in said) == 10
    assert {values for _, values in said} == {"[0.0, 1.0, 2.0, 3.0] 0\n"}


@pytest.mark.parametrize("rank", [0, 1])
def test_ctrl_c_ends_a_rendezvous(folders, member, rank):
    member(rank, 2, free_port())
    running = subprocess.Popen(
        [sys.executable, "-c", WAITS, folders.ref, folders.test], stderr=subprocess.PIPE, text=True
    )
    assert running.stderr.readline().startswith("waiting for rank")
    running.send_signal(signal.SIGINT)
    _, error = running.communicate(timeout=PATIENCE)
    assert (running.returncode, error) == (130, "interrupted\n")
