"""`syncfree.distributed.evaluate`: values against plain torch, errors, memory, and processes."""

from __future__ import annotations

import json
import os
import signal
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import default_collate

from evaluation_cases import METRICS, Data, expected, halve, mse, psnr
from syncfree.distributed import evaluate, launch
from syncfree.distributed.flight import Flight
from syncfree.distributed.inference import Inference
from syncfree.distributed.launcher import Launcher
from syncfree.errors import DeviceError, EvaluationError, LibraryError, RankError


@pytest.mark.parametrize("batch", [None, 1, 3])
@pytest.mark.parametrize("schedule", ["dynamic", "equal", "cost"])
def test_values_are_those_of_one_image_at_a_time(device, batch, schedule):
    data = Data(20)
    costs = [pair[0].numel() for pair in data.pairs]
    found = evaluate(
        halve, data, METRICS, device=device, batch=batch, costs=costs, schedule=schedule
    )
    assert list(found.values) == list(METRICS)
    for name, metric in METRICS.items():
        torch.testing.assert_close(found.values[name], expected(data, metric), rtol=1e-5, atol=1e-6)
    assert found.failures == {}
    (rank,) = found.statistics.ranks
    assert rank.report.items == 20
    assert rank.report.cost == sum(costs)
    assert 0 < rank.report.busy_seconds <= found.statistics.seconds
    assert (rank.report.transfer_seconds > 0) == (device != "cpu")


def test_batches_do_not_change_a_psnr(device):
    data = Data(12)
    runs = [evaluate(halve, data, METRICS, device=device, batch=size) for size in (1, 2, 5)]
    for run in runs[1:]:
        assert run.values["psnr"].equal(runs[0].values["psnr"])


def test_nothing_to_evaluate():
    found = evaluate(halve, Data(0), METRICS, device="cpu")
    assert found.values["mse"].shape == (0,)


def test_items_that_fail_are_named_and_the_others_are_kept(device):
    data = Data(9, bad=(2, 7))
    with pytest.raises(
        EvaluationError, match=r"2 items failed; .* item 2: OSError: no file 2"
    ) as e:
        evaluate(halve, data, METRICS, device=device)
    found = evaluate(halve, data, METRICS, device=device, strict=False)
    assert found.failures == e.value.failures == {2: "OSError: no file 2", 7: "OSError: no file 7"}
    bad = found.values["mse"].isnan()
    assert bad.nonzero().flatten().tolist() == [2, 7]
    good = ~bad
    torch.testing.assert_close(found.values["mse"][good], expected(data, mse)[good])


def test_one_item_that_fails_is_told_as_one():
    with pytest.raises(EvaluationError, match=r"^1 item failed, item 1: OSError: no file 1$"):
        evaluate(halve, Data(3, bad=(1,)), METRICS, device="cpu")


@pytest.mark.parametrize("kind", [AssertionError, IndexError, KeyError, RuntimeError, ValueError])
def test_a_model_that_raises_costs_its_batch_alone(kind):
    data = Data(9)

    def picky(x):
        if x.equal(data[4][0][None]):
            raise kind("no such picture")
        return halve(x)

    found = evaluate(picky, data, {"mse": mse}, device="cpu", batch=1, strict=False)
    assert list(found.failures) == [4]
    assert found.values["mse"].isnan().nonzero().flatten().tolist() == [4]


@pytest.mark.parametrize("kind", [ImportError, LibraryError, TypeError])
def test_what_would_fail_with_every_item_is_raised(kind):
    def wrong(x):
        raise kind("whatever the item")

    with pytest.raises(kind, match="whatever the item"):
        evaluate(wrong, Data(3), METRICS, device="cpu", strict=False)


def test_ctrl_c_leaves_no_thread():
    def interrupted(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(interrupted, Data(3), METRICS, device="cpu")
    assert "syncfree-coordinator" not in [thread.name for thread in threading.enumerate()]


def test_ctrl_c_waits_for_no_item_that_is_not_being_loaded():
    loads, released = [], threading.Event()

    class Slow(Data):
        def __getitem__(self, index):
            loads.append(index)
            if len(loads) > 1:
                released.wait(60)
            return super().__getitem__(index)

    def interrupted(x):
        threading.Timer(0.5, released.set).start()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(interrupted, Slow(9), METRICS, device="cpu", batch=1, workers=1)
    assert len(loads) <= 2  # the second one may have begun


@pytest.mark.parametrize("make", [np.float32, np.int64, torch.tensor])
def test_costs_may_be_of_numpy_or_torch(make):
    data = Data(4)
    found = evaluate(halve, data, {"mse": mse}, device="cpu", costs=[make(3) for _ in range(4)])
    torch.testing.assert_close(found.values["mse"], expected(data, mse))
    assert found.statistics.ranks[0].report.cost == 12


def test_a_metric_with_one_value_for_a_batch_is_refused():
    same = [Data(1)[0]] * 3
    with pytest.raises(EvaluationError, match=r"metric 'mean' gave shape \(\) for 3 items"):
        evaluate(halve, same, {"mean": lambda preds, target: preds.mean()}, device="cpu")


def first(outputs, targets):
    return outputs.flatten(1)[:, 0].double() + targets.flatten(1).sum(1)


@pytest.mark.parametrize(
    "target",
    [
        *(2, True, 0.1, np.int32(3), np.float64(0.1), np.float16(0.5), np.bool_(True)),
        *(np.arange(4.0)[::-1], np.array(2, dtype=np.int16)),
    ],
    ids=lambda value: f"{type(value).__name__}{np.shape(value)}",
)
def test_numbers_become_tensors_as_in_a_data_loader(target, device):
    """As torchvision's data sets give them."""
    data = [(np.full((2, 3), index, np.float32), target) for index in range(6)]
    seen = set()

    def noted(outputs, targets):
        seen.add((outputs.dtype, targets.dtype, targets.shape[1:]))
        return first(outputs, targets[:, None])

    found = evaluate(nn.Flatten().eval(), data, {"first": noted}, device=device)
    _, targets = default_collate([(source.copy(), np.copy(target)) for source, _ in data])
    _, kind = default_collate([(0, target if np.ndim(target) == 0 else target.copy())])
    assert seen == {(torch.float32, kind.dtype, targets.shape[1:])}
    want = np.arange(6) + np.sum(target, dtype=np.float64)
    np.testing.assert_array_equal(found.values["first"], want)


def test_inputs_may_be_numbers(device):
    found = evaluate(
        lambda x: x * 2, [(0.5, 1), (1.5, 2)], {"sum": lambda a, b: a + b}, device=device
    )
    assert found.values["sum"].tolist() == [2.0, 5.0]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ((torch.rand(2), "cat"), "target of an item is a tensor, a number .* but got str;"),
        (([1, 2], 0), "input of an item .* but got list;"),
        ((np.array(["cat"]), 0), "input of an item .* but got numpy ndarray of <U3;"),
        ((torch.rand(2), None), "but got NoneType;"),
        ((torch.rand(2), 0, "name"), "gave tuple of 3; wrap it"),
        (7, "gave int; wrap it"),
        ({"image": torch.rand(2), "label": 0}, "gave dict; wrap it"),
    ],
)
def test_items_that_cannot_be_used_are_explained(item, message):
    with pytest.raises(EvaluationError, match=f"item 0: TypeError: .*{message}"):
        evaluate(halve, [item], {"first": first}, device="cpu")


@pytest.mark.parametrize("value", [0.5, [0.5, 0.5]], ids=["float", "list"])
def test_a_metric_that_gives_no_tensor_is_refused(value, device):
    kind = type(value).__name__
    with pytest.raises(TypeError, match=f"metric 'own' gave {kind}; it must give a tensor"):
        evaluate(halve, Data(2), {"own": lambda preds, target: value}, device=device)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metrics": {}}, "at least one metric"),
        ({"schedule": "random"}, "dynamic, equal, cost"),
        ({"batch": 0}, "batch is at least 1"),
        ({"workers": -1}, "workers is at least 0, got -1"),
        ({"timeout": 0}, "timeout is more than 0 seconds, got 0"),
        ({"costs": [1.0]}, "a cost for each of 4 items, got 1"),
        ({"model": nn.Dropout()}, r"call model\.eval\(\)"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        evaluate(**{"model": halve, "dataset": Data(4), "metrics": METRICS, **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metrics": mse}, "mapping of names to functions, but got function"),
        ({"dataset": iter([])}, "has a length .* but got list_iterator"),
        ({"batch": 2.5}, r"batch is a whole number, got 2\.5"),
        ({"workers": 1.5}, r"workers is a whole number, got 1\.5"),
    ],
)
def test_arguments_of_wrong_types(arguments, message):
    with pytest.raises(TypeError, match=message):
        evaluate(**{"model": halve, "dataset": Data(4), "metrics": METRICS, **arguments})


@pytest.mark.parametrize(
    ("gpus", "wanted", "seen"),
    [(0, "cuda", "no GPU"), (0, torch.device("cuda:1"), "no GPU"), (2, "cuda:2", "to cuda:1")],
)
def test_a_gpu_that_is_not_there_is_named_at_once(monkeypatch, gpus, wanted, seen):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(DeviceError, match=f"asked for {wanted}, but torch sees .*{seen} here"):
        evaluate(halve, Data(1), METRICS, device=wanted)


@pytest.mark.parametrize("wanted", ["mps", "meta"])
def test_a_device_of_another_kind_is_refused(wanted):
    with pytest.raises(DeviceError, match=f"cuda and cpu devices, but was asked for {wanted}"):
        evaluate(halve, Data(1), METRICS, device=wanted)


def test_memory_that_runs_out_costs_no_item(device):
    sizes = []

    def model(x):
        sizes.append(len(x))
        if len(x) > 2:
            raise torch.OutOfMemoryError("too large")
        return halve(x)

    data = Data(30)
    found = evaluate(model, data, METRICS, device=device, batch=8)
    torch.testing.assert_close(found.values["mse"], expected(data, mse))
    assert max(sizes) > 2
    assert max(sizes[-5:]) <= 2


class Work:
    """What `Flight` waits for."""

    def __init__(self, batch):
        self.batch = batch

    def wait(self):
        pass


def test_a_batch_that_fits_once_others_have_landed_stays_whole():
    under_way, sizes = [], []

    class Landing(Work):
        def wait(self):
            under_way.remove(self)

    def submit(batch):
        if under_way:
            raise torch.OutOfMemoryError("too large beside another")
        sizes.append(len(batch))
        under_way.append(Landing(batch))
        return under_way[-1]

    flight = Flight(submit)
    for _ in range(3):
        list(flight.send(range(8)))
    assert sizes == [8, 8, 8]


def test_results_come_before_all_items_are_loaded():
    """Of many shapes, none of which fills a batch: a rank that dies must not lose them all."""
    data = [(torch.rand(1, 1, size), torch.rand(1, 1, size)) for size in range(1, 61)]
    inference = Inference(halve, {"mse": mse}, torch.device("cpu"), batch=2, workers=1)
    taken = []

    def items():
        for item in range(len(data)):
            taken.append(item)
            yield item

    results = inference.run(items(), data)
    next(results)
    assert len(taken) < 20
    assert len(list(results)) == 59


def test_an_item_that_never_fits_fails_alone():
    def submit(batch):
        if 5 in batch:
            raise torch.OutOfMemoryError("too large")
        return Work(batch)

    flight = Flight(submit)
    done = [*flight.send(range(8)), *flight.land_all()]
    failed = [each for each in done if not isinstance(each, Work)]
    assert [list(batch) for batch, _ in failed] == [[5]]
    fitted = [item for each in done if isinstance(each, Work) for item in each.batch]
    assert sorted(fitted) == [0, 1, 2, 3, 4, 6, 7]


# Processes


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


def _fails(fleet, device):
    raise SystemExit(3) if fleet.rank == 1 else SystemExit(0)


def test_launch_names_the_process_that_failed():
    with pytest.raises(RankError, match="rank 1: exited with status 3"):
        launch(_fails, ["cpu", "cpu"])
    with pytest.raises(ValueError, match="at least one device"):
        launch(_fails, [])


def test_ctrl_c_during_the_start_leaves_no_process(interruptible, monkeypatch):
    launcher = Launcher(_fails, ["cpu"])
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
