"""`launch`: processes that its processes start, and how both end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader

from fleet_cases import PATIENCE
from syncfree.distributed import DynamicSampler, launch, launcher
from syncfree.distributed.evaluation import _device
from syncfree.distributed.fleet import Fleet
from syncfree.distributed.launcher import Launcher


def _loads_in_a_process(fleet, device, folder):
    loader = DataLoader(range(10), batch_size=2, sampler=DynamicSampler(10), num_workers=1)
    seen = [index for batch in loader for index in batch.tolist()]
    (folder / f"{fleet.rank}").write_text(json.dumps(seen))


def test_a_data_loader_may_have_processes(tmp_path):
    """Daemonic processes may not start any."""
    launch(_loads_in_a_process, ["cpu", "cpu"], (tmp_path,))
    seen = [index for rank in "01" for index in json.loads((tmp_path / rank).read_text())]
    assert sorted(seen) == list(range(10))


LEAVES = """
import sys, threading, time
from syncfree.distributed import launch

def work(fleet, device):
    print("working", flush=True)
    time.sleep(10_000)

if __name__ == "__main__":
    threading.Thread(target=launch, args=(work, ["cpu"]), daemon=True).start()
    sys.stdin.readline()
"""


def test_a_program_that_ends_takes_its_processes_along(tmp_path):
    (tmp_path / "leaves.py").write_text(LEAVES)
    running = subprocess.Popen(
        [sys.executable, tmp_path / "leaves.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert running.stdout.readline() == "working\n"
        # Ends when nobody has the pipe of standard output any more.
        assert running.communicate("\n", timeout=PATIENCE)[0] == ""
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 0


def test_processes_that_do_not_end_have_one_time_limit_together(monkeypatch):
    now = 0.0

    class Stuck:
        killed = False

        def join(self, timeout=0.0):
            nonlocal now
            now += timeout

        def is_alive(self):
            return not self.killed

        def kill(self):
            self.killed = True

    leaving = Launcher(_loads_in_a_process, ["cpu"] * 4)
    stuck = [Stuck() for _ in range(4)]
    leaving._processes = dict(enumerate(stuck))
    monkeypatch.setattr(launcher, "time", SimpleNamespace(monotonic=lambda: now), raising=False)
    leaving.__exit__(None, None, None)
    assert now == launcher._LAST_SECONDS
    assert all(each.killed for each in stuck)


# The device of a rank


@pytest.mark.parametrize(
    ("local_rank", "current", "launched", "expected"),
    [
        (0, 0, None, 0),
        (1, 0, None, 1),  # nobody has called `torch.cuda.set_device`
        (5, 0, None, 1),
        (0, 1, None, 1),  # somebody has
        (1, 3, None, 3),
        (1, 0, "cuda:0", 0),  # `launch` has
        (1, 3, "cuda:3", 3),
    ],
)
@pytest.mark.parametrize("wanted", [None, "cuda", torch.device("cuda")], ids=str)
def test_a_gpu_without_a_number_is_that_of_the_rank(
    wanted, local_rank, current, launched, expected, monkeypatch
):
    """Under `torchrun` all ranks of a host were on the current GPU, the first one."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    monkeypatch.setattr(launcher, "_own_device", launched, raising=False)
    fleet = Fleet(None, local_rank, 8, local_rank)
    assert _device(wanted, fleet) == torch.device("cuda", expected)


def test_a_process_that_was_launched_on_the_cpu_stays_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(launcher, "_own_device", "cpu", raising=False)
    assert _device(None, Fleet(None, 0, 1)) == torch.device("cpu")


def _says_its_device(fleet, device, folder):
    (folder / "device").write_text(str(launcher.own_device()))


def test_a_launched_process_knows_its_device(tmp_path):
    launch(_says_its_device, ["cpu"], (tmp_path,))
    assert (tmp_path / "device").read_text() == "cpu"
    assert launcher.own_device() is None
