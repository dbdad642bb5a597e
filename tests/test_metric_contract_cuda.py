"""What every metric class must satisfy on CUDA: no waits, graphs, streams and devices."""

from __future__ import annotations

import warnings

import pytest
import torch

from class_cases import ClassCase
from metric_contract import (
    check_that_no_call_waits,
    every_case,
    same_states,
    same_value,
    without_lists,
)
from syncfree import _capture


@pytest.mark.parametrize("is_bad_fork", [True, False])
@pytest.mark.parametrize("is_initialized", [True, False])
def test_cuda_is_asked_of_a_capture_only_where_it_runs(
    is_initialized: bool, is_bad_fork: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere, as in a child that was forked from a process with CUDA, the question raises."""
    asked = []
    monkeypatch.setattr(_capture, "_has_cuda", True)
    monkeypatch.setattr(_capture, "_ask", _capture._ask_first)
    monkeypatch.setattr(_capture, "stream_capture_address", lambda: 0)  # so that torch is asked
    monkeypatch.setattr(_capture, "_ask_torch", lambda: not asked.append(1))
    monkeypatch.setattr(torch.cuda, "_initialized", is_initialized)
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: is_bad_fork)
    assert _capture.is_capturing() == torch.cuda.is_initialized() == bool(asked)
    if asked:
        assert _capture.is_capturing()
        assert len(asked) == 2
        monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
        assert not _capture.is_capturing()
        assert len(asked) == 2


@pytest.mark.needs_cuda
def test_a_capture_is_seen() -> None:
    x = torch.zeros(1, device="cuda")
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.add_(1)
        assert _capture.is_capturing()
    assert not _capture.is_capturing()


@pytest.mark.needs_cuda
@every_case
def test_no_call_waits(case: ClassCase) -> None:
    check_that_no_call_waits(case.pair("cuda")[0], case.batches("cuda"))


@pytest.mark.needs_cuda
@without_lists
@pytest.mark.parametrize("step", ["update", "forward"])
def test_replayed_steps_accumulate(case: ClassCase, step: str) -> None:
    metric, alone = case.pair("cuda")
    batches = [(a, b) for a, b in case.batches("cuda") if len(a) == 5]
    held = tuple(x.clone() for x in batches[0])
    getattr(metric, step)(*held)
    metric.reset()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = getattr(metric, step)(*held)
    metric.reset()
    graph.replay()
    alone.update(*held)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # there has been an update
        same_value(metric.compute(), alone.compute())
    metric.reset()
    alone.reset()
    for _ in range(2):
        for batch in batches:
            for place, new in zip(held, batch, strict=True):
                place.copy_(new)
            graph.replay()
            want = alone(*batch)
            if step == "forward":
                same_value(value, want)
            # Not the value from before, though the metric does not learn of the replay.
            same_value(metric.compute(), alone.compute())
        same_states(metric, alone)
        metric.reset()
        alone.reset()


@pytest.mark.needs_cuda
@every_case
def test_steps_run_on_the_current_stream(case: ClassCase) -> None:
    """Inputs arrive late on a side stream; a step on any other stream would read zeros."""
    metric, theirs = case.pair("cuda")
    batches = case.batches("cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        for batch in batches:
            late = [torch.zeros_like(x) for x in batch]
            torch.cuda._sleep(100_000_000)
            for place, x in zip(late, batch, strict=True):
                place.copy_(x)
            metric.update(*late)
            metric(*late)
        value = metric.compute()
    side.synchronize()
    for batch in batches:
        theirs.update(*batch)
        theirs.update(*batch)
    same_states(metric, theirs)
    same_value(value, theirs.compute())


@pytest.mark.needs_two_gpus
@every_case
def test_on_another_device_than_the_current_one(case: ClassCase) -> None:
    metric, theirs = case.pair("cuda:1")
    with torch.cuda.device(0):
        for i, batch in enumerate(case.batches("cuda:1")):
            if i % 2:
                metric.update(*batch)
                theirs.update(*batch)
            else:
                same_value(metric(*batch), theirs(*batch))
        same_states(metric, theirs)
        same_value(metric.compute(), theirs.compute())
        metric.reset()
        theirs.reset()
        same_states(metric, theirs)
