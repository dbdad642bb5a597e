"""`evaluate` in several processes, and `launch`, which starts them."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import signal
import time

import pytest
import torch
import torch.distributed as dist

from evaluation_cases import METRICS, Data, expected, halve, mse, psnr
from syncfree.distributed import evaluate, launch
from syncfree.distributed.channel import Channel, Mailbox
from syncfree.distributed.environment import available_cores, cores_of_each
from syncfree.distributed.fleet import Fleet
from syncfree.distributed.launcher import Launcher
from syncfree.errors import RankError


def _in_each(fleet, device, folder):
    data = Data(40, bad=(11,))
    found = evaluate(halve, data, METRICS, device=device, costs=[1.0] * 40, strict=False)
    values = {name: column.tolist() for name, column in found.values.items()}
    ranks = [rank.report.items for rank in found.statistics.ranks]
    record = {"values": values, "failures": found.failures, "items": ranks, "device": device}
    (folder / f"{fleet.rank}.json").write_text(json.dumps(record))

    def fail(x):
        raise RuntimeError("CUDA error: a defect of rank 1")

    # One rank that cannot go on: the other does everything, and the first one raises.
    good = Data(6)
    if fleet.rank == 1:
        with pytest.raises(RuntimeError, match="a defect of rank 1"):
            evaluate(fail, good, {"mse": mse}, device=device, schedule="equal")
        return
    found = evaluate(halve, good, {"mse": mse}, device=device, schedule="equal")
    torch.testing.assert_close(found.values["mse"], expected(good, mse))
    assert found.statistics.ranks[1].lost == "RuntimeError: CUDA error: a defect of rank 1"


@pytest.mark.parametrize(
    "devices",
    [
        ["cpu", "cpu"],
        pytest.param(["cuda:0", "cuda:1"], marks=pytest.mark.needs_two_gpus),
    ],
    ids=["cpu", "cuda"],
)
def test_every_process_gets_all_values(devices, tmp_path):
    launch(_in_each, devices, (tmp_path,))
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert (first.pop("device"), second.pop("device")) == tuple(devices)
    assert str(first) == str(second)  # NaN is not equal to itself
    assert list(first["failures"]) == ["11"]
    assert sum(first["items"]) == 40
    data = Data(40)
    values = torch.tensor(first["values"]["psnr"], dtype=torch.float64)
    assert values.isnan().nonzero().flatten().tolist() == [11]
    values[11] = expected(data, psnr)[11]
    torch.testing.assert_close(values, expected(data, psnr), rtol=1e-5, atol=1e-6)


def _in_another_order(fleet, device, folder):
    names = ["psnr", "mse"] if fleet.rank == 0 else ["mse", "psnr"]
    metrics = {name: METRICS[name] for name in names}
    data = Data(40)
    found = evaluate(halve, data, metrics, device=device, batch=1, schedule="equal")
    assert list(found.values) == names
    for name, values in found.values.items():
        torch.testing.assert_close(values, expected(data, METRICS[name]), rtol=1e-5, atol=1e-6)
    (folder / f"{fleet.rank}").touch()


def test_metrics_are_told_apart_by_name(tmp_path):
    """By their places, as the names of a set have them, values of two metrics were mixed."""
    launch(_in_another_order, ["cpu", "cpu"], (tmp_path,))
    assert len(list(tmp_path.iterdir())) == 2


def _in_disagreement(fleet, device, folder):
    for theirs in ((Data(10), {"other": mse}), (Data(15), {"mse": mse}), (Data(5), {"mse": mse})):
        for schedule in ("equal", "dynamic"):
            if fleet.rank == 1:
                message = r"this one has \['(other|mse)'\] and .* items, rank 0 \['mse'\] and 10"
                with pytest.raises(ValueError, match=message):
                    evaluate(halve, *theirs, device=device, schedule=schedule)
                continue
            found = evaluate(halve, Data(10), {"mse": mse}, device=device, schedule=schedule)
            torch.testing.assert_close(found.values["mse"], expected(Data(10), mse))
            assert "all ranks pass metrics of the same names" in found.statistics.ranks[1].lost
    (folder / f"{fleet.rank}").touch()


def test_ranks_that_disagree_are_told(tmp_path):
    launch(_in_disagreement, ["cpu", "cpu"], (tmp_path,))
    assert len(list(tmp_path.iterdir())) == 2


def test_the_store_may_be_gone_with_rank_0(monkeypatch):
    """A rank that read it after its goodbye lost the evaluation where rank 0 was quicker."""
    told = []
    post, read = Mailbox.post, Channel.read

    def posting(self, message):
        told.append("goodbye" in message)
        post(self, message)

    def reading(self, name):
        assert name != "terms" or not any(told)
        return read(self, name)

    monkeypatch.setattr(Mailbox, "post", posting)
    monkeypatch.setattr(Channel, "read", reading)
    fleet = Fleet(dist.HashStore(), 0, 1)
    evaluate(halve, Data(4), {"mse": mse}, device="cpu", fleet=fleet)
    assert any(told)
    monkeypatch.undo()
    assert Channel(fleet.store, "evaluate/1").read("terms") is None


def _fails(fleet, device):
    raise SystemExit(3) if fleet.rank == 1 else SystemExit(0)


def test_launch_names_the_process_that_failed():
    with pytest.raises(RankError, match="rank 1: exited with status 3"):
        launch(_fails, ["cpu", "cpu"])


def _says_its_threads(fleet, device, folder):
    (folder / str(fleet.rank)).write_text(str(torch.get_num_threads()))


@pytest.mark.parametrize("said", [None, "2"])
def test_threads_are_divided_among_processes(said, tmp_path, monkeypatch):
    """torch takes all cores for each, and they would be in each other's way."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if said is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", said)
    launch(_says_its_threads, ["cpu", "cpu"], (tmp_path,))
    expected = said or str(max(1, available_cores() // 2))
    assert [(tmp_path / rank).read_text() for rank in "01"] == [expected] * 2


def test_a_function_without_a_name_is_refused():
    with pytest.raises(TypeError, match="defined at the top level of a module, but got <function"):
        launch(lambda fleet, device: None, ["cpu"])
    with pytest.raises(TypeError, match="calls a function, but got 3"):
        launch(3, ["cpu"])


def _raises(fleet, device):
    if fleet.rank == 1:
        raise ValueError("no such weights")


def test_launch_tells_what_the_process_raised():
    with pytest.raises(
        RankError, match=r"rank 1: exited with status 1 after ValueError: no such weights$"
    ):
        launch(_raises, ["cpu", "cpu"])


def _raises_what_is_no_text(fleet, device):
    raise ValueError("no file \udcff.png" + "!" * 9_000_000)


def test_launch_tells_what_the_store_could_not_keep():
    with pytest.raises(RankError, match=r"rank 0: exited with status 1 after ValueError: no file"):
        launch(_raises_what_is_no_text, ["cpu"])


def _puts_its_rank(queue, fleet, device):
    queue.put(fleet.rank)


def test_launch_takes_what_multiprocessing_pickles():
    queue = multiprocessing.get_context("spawn").Queue()
    launch(functools.partial(_puts_its_rank, queue), ["cpu", "cpu"])
    assert sorted(queue.get(timeout=10) for _ in range(2)) == [0, 1]


@pytest.mark.parametrize(
    ("own", "parents", "processes", "expected"),
    [
        (64, 64, 8, 8),  # shared by all
        (8, 64, 8, 8),  # bound to cores of its own
        (32, 64, 8, 8),  # to those of a socket
        (8, 8, 8, 1),  # of a container
        (2, 2, 4, 1),
        (8, None, 2, 4),  # the parent has ended
    ],
)
def test_cores_of_each_process(own, parents, processes, expected, monkeypatch):
    def affinity(process):
        if process != 0 and parents is None:
            raise ProcessLookupError
        return set(range(parents if process else own))

    monkeypatch.setattr(os, "sched_getaffinity", affinity)
    assert cores_of_each(processes) == expected


@pytest.mark.parametrize(
    ("devices", "error", "message"),
    [
        ([], ValueError, "at least one device"),
        (["cpu", "cpux"], ValueError, "each device is one of cpu.*, but got 'cpux'"),
        (["cuda:99"], ValueError, "each device is one of cpu.*, but got 'cuda:99'"),
        ("cpu", TypeError, "a list of names, one for each process, but got 'cpu'"),
        (2, TypeError, "a list of names, one for each process, but got 2"),
    ],
)
def test_launch_refuses_devices(devices, error, message):
    with pytest.raises(error, match=message):
        launch(_fails, devices)


def _stays(fleet, device):
    time.sleep(600)


def test_ctrl_c_during_the_start_leaves_no_process(interruptible, monkeypatch):
    launcher = Launcher(_stays, ["cpu"])
    (process,) = launcher._processes.values()
    start = type(process).start

    def interrupted(process):
        start(process)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(type(process), "start", interrupted)
    with pytest.raises(KeyboardInterrupt), launcher:
        pass
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


def test_ctrl_c_at_the_end_leaves_no_process(interruptible, monkeypatch):
    """It comes late where another thread than Python's main one was sent it."""
    launcher = Launcher(_stays, ["cpu"])
    (process,) = launcher._processes.values()

    def interrupted(timeout=None):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), launcher:
        patch.setattr(process, "join", interrupted)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
