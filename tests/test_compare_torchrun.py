"""`syncfree compare` under `torchrun`, and journals from which a run is taken up again."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from dataclasses import replace

import pytest
import torch.distributed as dist
from PIL import Image

from comparing import picture
from fleet_cases import PATIENCE, alone, assert_same_answers, base, folders, run, script
from syncfree.cli.compare import documents
from syncfree.cli.compare.fleet import Work, _Lead
from syncfree.cli.compare.fleet_options import FleetOptions
from syncfree.cli.compare.maps import map_file
from syncfree.cli.compare.options import CompareOptions
from syncfree.cli.compare.pairs import find_pairs
from syncfree.cli.compare.pipeline import compare_pairs
from syncfree.distributed.channel import Channel
from syncfree.distributed.journal import Journal

__all__ = ["alone", "base", "folders", "script"]  # fixtures


@pytest.fixture(scope="module")
def joined(folders, script, base):
    """A run in which rank 1 dies, which ends the group, and one that completes it."""
    file, journals = base / "joined.json", base / "journals"
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, script,
               "compare", folders.ref, folders.test, "--device", "cpu", "--workers", 1,
               "--batch", 2, "--json", file, "--resume", journals]  # fmt: skip
    first = run(command, TROUBLE="0=none,1=killed late")
    assert first.returncode != 0
    assert not file.exists()
    second = run(command, TROUBLE="0=none,1=broken")
    return first, second, json.loads(file.read_text()), journals


def test_torchrun_with_a_dead_process_names_it(joined):
    first, *_ = joined
    assert "SIGKILL" in first.stderr
    assert "rank      : 1" in first.stderr


def test_torchrun_with_a_stuck_process_does_its_part(folders, script, base, alone):
    file = base / "stuck.json"
    done = run(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, script,
                "compare", folders.ref, folders.test, "--device", "cpu", "--workers", 1,
                "--timeout", 20, "--json", file],
               TROUBLE="0=none,1=stuck")  # fmt: skip
    assert done.returncode != 0
    report = json.loads(file.read_text())
    assert_same_answers(report, alone)
    (lost,) = (each["reason"] for each in report["problems"] if each["kind"] == "rank-lost")
    assert lost.startswith("rank 1: stuck: nothing came from it for 20 s; ")


def test_torchrun_with_a_leader_that_is_stuck_ends(folders, script):
    """As on a file system that hangs; it would have waited for ever."""
    done = run(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, script,
                "compare", folders.ref, folders.test, "--device", "cpu", "--workers", 1,
                "--timeout", 10],
               TROUBLE="0=stopped,1=none")  # fmt: skip
    assert done.returncode != 0
    assert "rank 0: stuck: the others heard nothing from it for 10 s" in done.stderr
    assert "RankError" not in done.stderr


def test_processes_of_two_hosts(folders, base, alone):
    """Two agents of `torchrun`, as on two hosts, that meet at a port."""
    file = base / "hosts.json"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1",
        "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "two",
        "--local-addr", "127.0.0.1", "-m", "syncfree", "compare", str(folders.ref),
        str(folders.test), "--device", "cpu", "--workers", "1", "--ignore-errors", "--json",
        str(file),
    ]  # fmt: skip
    agents = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [agent.communicate(timeout=PATIENCE) for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], said
    assert sorted(out.count("PSNR (dB)") for out, _ in said) == [0, 2]
    report = json.loads(file.read_text())
    assert_same_answers(report, alone)
    assert sum(rank["items"] for rank in report["fleet"]["ranks"]) == 48


def test_resume_completes_from_the_journals(joined, alone):
    _, second, report, journals = joined
    assert_same_answers(report, alone)
    restored = report["fleet"]["restored"]
    assert 0 < restored < 47
    assert restored + sum(rank["items"] for rank in report["fleet"]["ranks"]) >= 48
    assert len(list(journals.iterdir())) == 4
    assert f"{restored} images from journals" in second.stdout
    assert second.stdout.count("PSNR (dB)") == 2  # rank 0 alone shows the two tables


def test_a_process_whose_gpu_broke_is_left_out(joined):
    """The error of its device becomes no row: others do those images."""
    _, second, report, _ = joined
    (problem,) = [each for each in report["problems"] if each["kind"] == "rank-lost"]
    error = "rank 1: RuntimeError: CUDA error: an illegal memory access was encountered"
    assert problem["reason"].startswith(error)
    assert second.returncode == 1


def test_changed_pictures_are_compared_again(joined, folders, base):
    *_, journals = joined
    path = folders.test / "00.png"
    before = path.read_bytes()
    Image.fromarray(picture(99, 24, 30, 1)).save(path)
    file = base / "changed.json"
    try:
        done = run(["-m", "syncfree", "compare", folders.ref, folders.test, "--gpus", "cpu:1",
                    "--resume", journals, "--json", file])  # fmt: skip
    finally:
        path.write_bytes(before)
    assert done.returncode == 1
    report = json.loads(file.read_text())
    assert report["fleet"]["restored"] == 46  # all but the changed and the broken one
    assert report["images"][0]["psnr"] < 20


def test_a_pair_whose_map_is_missing_is_compared_again(folders, tmp_path):
    options = CompareOptions(device="cpu", maps=tmp_path / "maps")
    pairing = find_pairs(folders.ref, folders.test)
    pairing = replace(pairing, pairs=pairing.pairs[:3])
    journal = Journal(
        tmp_path / "journals", 0, documents.journal_heading(folders.ref, folders.test, options)
    )
    for outcome in compare_pairs(pairing.pairs, options):
        stamp = documents.stamp(outcome.pair)
        row = documents.outcome_document(outcome)
        journal.write({"name": outcome.pair.name, "stamp": stamp, **row})
    journal.close()
    fleet = FleetOptions(("cpu",), "dynamic", 300, journals=tmp_path / "journals")
    work = Work(folders.ref, folders.test, pairing, options, fleet)
    names = {pair.name for pair in pairing.pairs}
    assert _Lead(work, Channel(dist.HashStore(), "x"), 1).restored == names
    map_file(tmp_path / "maps", "01.png").unlink()
    assert _Lead(work, Channel(dist.HashStore(), "y"), 1).restored == names - {"01.png"}


def test_journals_of_other_options_are_refused(joined, folders, capsys):
    *_, journals = joined
    status, _ = folders.compare("--gpus", "cpu:1", "--resume", journals, "--crop-border", 2)
    assert status == 2
    assert "differs in: crop_border" in capsys.readouterr().err
