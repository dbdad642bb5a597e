"""Batches of `evaluate` that do not fit into memory."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

import syncfree
from evaluation_cases import METRICS, Data, expected, halve, mse
from syncfree.distributed import evaluate
from syncfree.distributed.flight import Flight


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


@pytest.mark.parametrize(("batch", "resets"), [(2, 0), (None, 1)])
def test_a_batch_that_is_given_leaves_the_user_s_peak_alone(batch, resets, monkeypatch):
    """To choose one, the memory of an item is measured, and torch has only one peak."""
    calls = []

    def noted(device):
        calls.append(device)
        reset(device)

    # Without a GPU, CPU tensors stand in for those of one.
    with nullcontext() if torch.cuda.is_available() else syncfree.detect_syncs(tier=0):
        reset = torch.cuda.reset_peak_memory_stats
        with monkeypatch.context() as patch:
            patch.setattr(torch.cuda, "reset_peak_memory_stats", noted)
            evaluate(halve, Data(4), {"mse": mse}, device="cuda", batch=batch)
    assert len(calls) == resets


class Work:
    """What `Flight` waits for."""

    def __init__(self, batch):
        self.batch = batch

    def wait(self):
        pass


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


def test_what_is_done_at_once_does_not_wait_for_others():
    flight = Flight(Work, depth=0)
    for batch in ([1, 2], [3], [4, 5]):
        assert [work.batch for work in flight.send(batch)] == [batch]
    assert not list(flight.land_all())


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
