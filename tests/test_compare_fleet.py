"""`syncfree compare` by several processes: the answers of one, whatever becomes of the others.

Each run starts processes that import torch, so several tests look at one run.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from PIL import Image

from comparing import Folders, distorted, picture
from fleet_cases import PATIENCE, alone, assert_same_answers, base, folders, run, script
from syncfree.cli import main

__all__ = ["alone", "base", "folders", "script"]  # fixtures


# One and two processes, with every output


@pytest.fixture(scope="module")
def scaled(folders, base):
    files = {name: base / f"scaled.{name}" for name in ("json", "csv", "png", "out")}
    done = run(["-m", "syncfree", "compare", folders.ref, folders.test, "--gpus", "cpu:2",
                "--scaling", "1,2", "--json", files["json"], "--csv", files["csv"],
                "--plot", files["png"], "--schedule", "pixels"])  # fmt: skip
    assert done.returncode == 1, done.stderr  # for the broken picture
    files["out"].write_text(done.stdout)
    return done, json.loads(files["json"].read_text()), files


def test_processes_give_the_answers_of_one(scaled, alone):
    _, report, _ = scaled
    assert_same_answers(report, alone)
    assert len(report["problems"]) == 1
    assert report["options"]["device"] == "cpu"
    assert report["options"]["device_name"] == "2 x CPU"


def test_the_csv_file_is_that_of_one_process(scaled, folders, base):
    _, _, files = scaled
    table = base / "alone.csv"
    folders.compare("--device", "cpu", "--csv", table)
    assert list(csv.reader(table.open())) == list(csv.reader(files["csv"].open()))


def test_statistics_of_the_processes(scaled):
    done, report, _ = scaled
    fleet = report["fleet"]
    assert fleet["schedule"] == "pixels"
    assert [rank["rank"] for rank in fleet["ranks"]] == [0, 1]
    assert sum(rank["items"] for rank in fleet["ranks"]) == 48
    for rank in fleet["ranks"]:
        assert 0 < rank["busy_seconds"] <= rank["active_seconds"] * 1.5
        assert rank["idle_share"] == pytest.approx(1 - rank["busy_seconds"] / fleet["seconds"])
        assert rank["lost"] is None
    active = [rank["active_seconds"] for rank in fleet["ranks"]]
    assert fleet["imbalance"] == pytest.approx(max(active) / (sum(active) / 2) - 1)
    assert report["summary"]["seconds"] == fleet["seconds"]
    assert f", ready after {fleet['startup_seconds']:.1f} s" in done.stdout


def test_scaling_is_reported(scaled):
    done, report, _ = scaled
    one, two = report["scaling"]
    assert (one["processes"], one["speedup"], one["efficiency"]) == (1, 1, 1)
    assert two["processes"] == 2
    assert two["speedup"] == pytest.approx(one["seconds"] / two["seconds"])
    assert two["efficiency"] == pytest.approx(two["speedup"] / 2)
    assert "speed-up" in done.stdout


def test_the_plot_is_a_picture(scaled):
    with Image.open(scaled[2]["png"]) as image:
        assert min(image.size) > 200
        assert len(image.convert("RGB").getcolors(1 << 20)) > 3


# Four processes, in trouble


@pytest.fixture(scope="module")
def troubled(folders, script, base):
    file = base / "troubled.json"
    done = run([script, "compare", folders.ref, folders.test, "--gpus", "cpu:4", "--workers", 1,
                "--json", file, "--timeout", 20],
               TROUBLE="0=slow,1=killed,2=stuck")  # fmt: skip
    assert done.returncode == 1, done.stderr
    return done, json.loads(file.read_text())


def test_survivors_finish_the_job(troubled, alone):
    _, report = troubled
    assert_same_answers(report, alone)
    assert report["fleet"]["reissued"] > 0


def test_lost_processes_are_named(troubled):
    done, report = troubled
    lost = sorted(each["reason"] for each in report["problems"] if each["kind"] == "rank-lost")
    assert len(lost) == 2
    assert lost[0].startswith("rank 1: killed by SIGKILL; ")
    assert lost[1].startswith("rank 2: stuck: nothing came from it for 20 s; ")
    assert "rank 1: killed by SIGKILL" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_slow_process_gets_less(troubled):
    items = [rank["items"] for rank in troubled[1]["fleet"]["ranks"]]
    assert 0 < items[0] < items[3]


def test_more_processes_than_images(folders, base):
    few = Folders(base / "few")
    for index in range(2):
        few.add(f"{index}.png", picture(index), distorted(picture(index)))
    status, report = few.compare("--gpus", "cpu:4", "--schedule", "equal")
    assert status == 0
    assert len(report["images"]) == 2
    assert [rank["items"] for rank in report["fleet"]["ranks"]] == [1, 1, 0, 0]
    assert [rank["speed"] for rank in report["fleet"]["ranks"]][2:] == [None, None]
    assert few.compare("--device", "cpu")[1]["images"] == report["images"]


# Ctrl-C


@pytest.fixture
def interruptible():
    """Ctrl-C works as in a terminal; a job in the background of a script starts with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_all_processes(folders, script, interruptible):
    command = [sys.executable, script, "compare", folders.ref, folders.test, "--gpus", "cpu:2"]
    running = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TROUBLE": "0=slow,1=slow"},
        start_new_session=True,
    )
    assert running.stdout.readline() == "loading\n"
    os.killpg(running.pid, signal.SIGINT)
    _, error = running.communicate(timeout=PATIENCE)
    assert running.returncode == 130, error
    assert "interrupted" in error
    end = time.monotonic() + PATIENCE
    while session_exists(running.pid):  # Python's own tracker of resources leaves last
        assert time.monotonic() < end
        time.sleep(0.1)


SLOW_START = """
import os, sys, time
if __name__ != "__main__":  # in the process that was started
    print("starting", flush=True)
    time.sleep(2)
from syncfree.distributed import launch
def work(fleet, device):
    pass
if __name__ == "__main__":
    try:
        launch(work, ["cpu"])
    except KeyboardInterrupt:
        sys.exit(130)
"""


def test_ctrl_c_during_the_start_shows_nothing_of_the_processes(tmp_path, interruptible):
    program = tmp_path / "slow_start.py"
    program.write_text(SLOW_START)
    running = subprocess.Popen(
        [sys.executable, program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert running.stdout.readline() == "starting\n"
    os.killpg(running.pid, signal.SIGINT)
    _, error = running.communicate(timeout=PATIENCE)
    assert running.returncode == 130, error
    assert error == ""


def session_exists(leader):
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    return True


# Usage


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gpus", "nonsense"], "all, a number of GPUs, or cpu:N"),
        (["--gpus", "cpu:0"], "all, a number of GPUs, or cpu:N"),
        (["--gpus", "cpu:9999"], "processes at most"),
        (["--gpus", "0"], "all, a number of GPUs, or cpu:N"),
        (["--gpus", "999"], "cpu:N starts N processes without a GPU"),
        (["--gpus", "cpu:2", "--device", "cpu"], "leave --device out"),
        (["--gpus", "cpu:2", "--schedule", "random"], "dynamic, equal, pixels"),
        (["--gpus", "cpu:2", "--timeout", "0"], "more than 0 seconds"),
        (["--gpus", "cpu:2", "--scaling", "1,4"], "--gpus names 2"),
        (["--gpus", "cpu:2", "--scaling", "2,1"], "rising numbers"),
        (["--gpus", "cpu:2", "--scaling", "one"], "rising numbers"),
        (["--gpus", "cpu:2", "--scaling", "1", "--resume", "x"], "leave --resume out"),
        (["--gpus", "cpu:2", "--resume", __file__], f"{__file__} is no folder; name a folder"),
        (["--scaling", "1,2"], "add --gpus"),
        (["--schedule", "equal"], "add --gpus"),
        (["--resume", "x"], "add --gpus 1, or --gpus cpu:1 without a GPU"),
    ],
)
def test_wrong_usage(folders, capsys, options, message):
    assert main(["compare", str(folders.ref), str(folders.test), *options]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


# GPUs


@pytest.mark.needs_two_gpus
def test_two_gpus_give_the_answers_of_one(folders):
    _, one = folders.compare("--device", "cuda:0")
    status, two = folders.compare("--gpus", "2", "--schedule", "equal")
    assert status == 1
    assert two["images"] == one["images"]
    assert two["options"]["device"] == "cuda:0,cuda:1"
    for rank in two["fleet"]["ranks"]:
        assert rank["items"] == 24
        assert 0 < rank["transfer_seconds"] <= rank["busy_seconds"] < two["fleet"]["seconds"]


@pytest.mark.needs_cuda
def test_one_gpu_process_gives_the_answers_of_this_one(folders):
    _, here = folders.compare("--device", "cuda:0")
    status, there = folders.compare("--gpus", "1")
    assert status == 1
    assert there["images"] == here["images"]
    (rank,) = there["fleet"]["ranks"]
    assert rank["device"] == "cuda:0"
    assert 0 < rank["transfer_seconds"] <= rank["busy_seconds"] < there["fleet"]["seconds"]
