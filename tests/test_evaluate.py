"""`syncfree.distributed.evaluate`: values against plain torch, what fails, and interruptions."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from evaluation_cases import METRICS, Data, expected, halve, mse
from syncfree.distributed import evaluate
from syncfree.distributed.inference import Inference
from syncfree.errors import EvaluationError, LibraryError


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


def test_a_pause_among_the_items_gets_what_is_held_under_way():
    """Three shapes, no batch of which is full: they are computed before the next item is asked."""
    data = Data(9)
    computed = []

    def model(x):
        computed.append(len(x))
        return x

    inference = Inference(model, {"mse": mse}, torch.device("cpu"), batch=8, workers=1)
    asked = []

    def items():
        yield from range(5)
        yield None
        asked.append(sum(computed))
        yield from range(5, 9)

    results = dict(inference.run(items(), data))
    assert asked == [5]
    assert sorted(results) == list(range(9))
    assert sum(computed) == 9


def test_a_cpu_tells_of_each_batch_at_once():
    """What a rank has measured is told before it measures more."""
    data = [(torch.rand(1, 3, 3), torch.rand(1, 3, 3)) for _ in range(12)]
    measured = []

    def counting(images):
        measured.extend(images)
        return images

    inference = Inference(counting, {"mse": mse}, torch.device("cpu"), batch=2, workers=1)
    for told, _ in enumerate(inference.run(iter(range(len(data))), data), start=1):
        assert len(measured) <= told + 1


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
