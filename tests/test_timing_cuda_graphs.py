"""The event timer and CUDA graphs, on a GPU: regions that are captured, and regions around."""

from __future__ import annotations

import pytest
import torch

from syncfree import EventTimer, _runtime
from syncfree.errors import TimerError

pytestmark = [pytest.mark.needs_cuda, pytest.mark.alone]


def test_cuda_graphs() -> None:
    timer = EventTimer()
    x = torch.zeros(8, device="cuda")
    with timer.region("eager"):
        x.add_(1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), timer.region("step"):
        with timer.region("spin"):
            _runtime.spin(torch.cuda.current_stream().cuda_stream, 1000.0)
        timer.poll()  # of what was recorded before, while this is being captured
        x.add_(1)
    assert timer.poll() == 0
    for number in range(1, 6):
        with timer.region("replay"):
            graph.replay()
        timer.wait()
        timer.poll()
        summary = timer.summary()
        assert summary["step"].count == summary["spin"].count == number
    assert x[0].item() == 1 + 5
    for each in timer.samples():
        if each.name == "spin":
            assert each.captured
            assert 990 < each.gpu_us < 20_000
    summary = timer.summary()
    assert summary["spin"].median_us <= summary["step"].median_us + 1
    # Of captured regions, nothing is taken off.
    (bracket,) = summary.json()["bracket_us"].values()
    assert summary["step"].median_us <= summary["replay"].median_us + (bracket or 0) + 1
    assert timer.counts()["skipped"] == 0


def test_a_region_around_a_capture() -> None:
    timer = EventTimer()
    x = torch.zeros(8, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with timer.region("capture"), torch.cuda.graph(graph):
        x.add_(1)
    graph.replay()
    timer.wait()
    assert timer.summary()["capture"].count == 1
    assert x[0].item() == 1


def test_a_region_that_outlives_the_capture_is_refused() -> None:
    timer = EventTimer()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        region = timer.start("r")
        torch.zeros(8, device="cuda")
    with pytest.raises(TimerError, match="cuEventRecord failed"):
        region.stop()
    assert timer.counts()["lost"] == 1
