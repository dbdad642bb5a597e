"""Bad labels met by metrics: where their error is raised, what it says, that none is lost."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import syncfree
from accuracy_metric import Options
from deferred_cases import CLASSES, Metric, current_line, labels
from syncfree import _error_records
from syncfree.functional.classification import multiclass_accuracy


@pytest.fixture(autouse=True)
def _nothing_left() -> None:
    syncfree.check_errors()


# ---- On the CPU.


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_cpu_raises_at_once_and_counts_nothing(average: str) -> None:
    metric = Metric(Options("multiclass", CLASSES, average), "cpu")
    metric.step(*labels("cpu"))
    before = [state.clone() for state in metric.states]
    message = r"in `target`: 7 at flat index 3, the first of 2, .* range \[0, 4\]\.$"
    for call in (metric.step, metric.update, metric.forward):
        with pytest.raises(RuntimeError, match=message):
            call(*labels("cpu", 7, -1))
    assert all(map(torch.equal, metric.states, before))
    assert metric.bad.item() == 0
    samples = Metric(Options("multiclass", CLASSES, average, samplewise=True), "cpu")
    with pytest.raises(RuntimeError, match=message):
        samples.update(*(x.view(4, 5) for x in labels("cpu", 7, -1)))
    assert not samples.lists


# ---- On CUDA.


@pytest.mark.needs_cuda
def test_next_call_of_the_metric_raises() -> None:
    metric, other = Metric(), Metric()
    metric.step(*labels("cuda", 7, -1))
    line = current_line() - 1
    torch.cuda.synchronize()
    other.step(*labels("cuda"))
    multiclass_accuracy(*labels("cuda"), CLASSES)
    with pytest.raises(RuntimeError, match="the following values") as error:
        metric.step(*labels("cuda"))
    text = str(_error_records.explain(error.value))
    assert "in `target` on cuda:0: 7 at flat index 3, the first of 2, but expected only" in text
    assert "labels in the range [0, 4]. They were left out and the result is NaN" in text
    assert text.endswith(f'Metric: Metric. Call: file "{__file__}", line {line}.')
    assert sum(int(state.sum()) for state in metric.states) == 18 * CLASSES
    assert metric.bad.item() == 2
    assert metric.compute().isnan()
    metric.step(*labels("cuda"))  # nothing is reported twice
    syncfree.check_errors()


@pytest.mark.needs_cuda
@pytest.mark.parametrize("average", ["micro", "macro", "weighted", "none"])
@pytest.mark.parametrize("samplewise", [False, True])
def test_values_become_nan(samplewise: bool, average: str) -> None:
    for task, shape in (("binary", (8, 3)), ("multiclass", (8, 3)), ("multilabel", (8, 3, 2))):
        metric = Metric(Options(task, 3, average, samplewise=samplewise))
        target = torch.ones(shape, dtype=torch.int64, device="cuda")
        metric.step(target, target)
        assert metric.compute().eq(1).any()
        spoiled = target.clone()
        spoiled[2, 1] = 9
        if samplewise:
            metric.step(target, spoiled)
        else:
            bits = _error_records.with_call(_error_records.slot_bits(metric.slot))
            assert metric.forward(target, spoiled, bits).isnan().all()
        torch.cuda.synchronize()
        with pytest.raises(RuntimeError, match="9 at flat index"):
            _error_records.raise_pending(metric.slot)
        assert metric.compute().isnan().all()
        assert metric.bad.item() == target[2, 1].numel()


@pytest.mark.needs_cuda
def test_compute_takes_the_record_without_waiting() -> None:
    metric, pair = Metric(), labels("cuda", 7)
    metric.step(*labels("cuda"))  # loads the kernels, which may wait
    torch.cuda._sleep(100_000_000)
    metric.step(*pair)
    _error_records.raise_pending(metric.slot)  # not known yet
    torch.cuda.synchronize()
    with pytest.raises(RuntimeError, match="7 at flat index 3, but"):
        _error_records.raise_pending(metric.slot)
    _error_records.raise_pending(metric.slot)
    metric.step(*labels("cuda", 8))
    torch.cuda.synchronize()
    with pytest.raises(RuntimeError, match="8 at flat index 3, but"):
        metric.compute(_error_records.with_call(_error_records.slot_bits(metric.slot)))


@pytest.mark.needs_cuda
def test_all_metrics_and_calls_are_told_of() -> None:
    first, second = Metric(), Metric(Options("multiclass", CLASSES, "micro", ignore_index=-1))
    pairs = labels("cuda", 7, 8), labels("cuda", -1, -2), labels("cuda", 6)
    for metric in (first, second):
        metric.step(*labels("cuda"))  # loads the kernels, which may wait
    multiclass_accuracy(*labels("cuda"), CLASSES)
    torch.cuda._sleep(100_000_000)  # or a later call would raise
    for _ in range(3):
        first.step(*pairs[0])
    second.step(*pairs[1])
    multiclass_accuracy(*pairs[2], CLASSES)
    line = current_line() - 1
    with pytest.raises(RuntimeError, match="the following values") as error:
        syncfree.check_errors()
    function, one, two = sorted(str(error.value).splitlines(), key=lambda line: "Metric" in line)
    assert "6 at flat index 3, but" in function
    assert "without this check. Call: file " in function
    assert function.endswith(f'test_deferred_errors.py", line {line}.')
    assert "7 at flat index 3, the first of 2" in one
    assert "Later calls met 4 more." in one
    assert "-2 at flat index 4, but " in two
    assert "range [0, 4] or ignore_index=-1." in two
    syncfree.check_errors()


@pytest.mark.needs_cuda
def test_without_validation_nothing_is_noted() -> None:
    metric = Metric(Options("multiclass", CLASSES, "macro", validate=False))
    assert metric.forward(*labels("cuda", 7, -1)).item() == 1.0
    assert metric.bad.item() == 0
    syncfree.check_errors()


@pytest.mark.needs_cuda
def test_replays_note_their_errors() -> None:
    metric = Metric()
    preds, target = labels("cuda")
    metric.step(preds, target)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        metric.step(preds, target)
        line = current_line() - 1
        value = metric.compute()
    graph.replay()
    assert value.item() == 1.0
    target[7] = 99
    graph.replay()
    assert value.isnan()
    with pytest.raises(RuntimeError, match=rf"99 at flat index 7, .* line {line}\.$"):
        _error_records.raise_pending(metric.slot)


@pytest.mark.needs_cuda
def test_streams_and_threads_lose_nothing() -> None:
    metric = Metric()
    reported, rounds, threads = [], 200, 4
    lock = threading.Lock()

    def note(error: RuntimeError) -> None:
        text = str(error)
        counts = re.findall(r"the first of (\d+)|met (\d+) more|Detected (\d+) values", text)
        said = [int(number) for found in counts for number in found if number]
        alone = len(re.findall(r"at flat index \d+, but", text))
        with lock:
            reported.append(alone + sum(said))

    # They stay until all is done: memory that is let go of goes back to the stream it was made on,
    # which may write to it while the others still read.
    pairs = [labels("cuda", *range(10, 11 + seed)) for seed in range(threads)]

    def work(seed: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(rounds):
                while True:
                    try:
                        metric.step(*pairs[seed])
                        break
                    except RuntimeError as error:  # of an earlier call
                        note(error)

    torch.cuda.synchronize()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
    torch.cuda.synchronize()
    try:
        _error_records.raise_pending(metric.slot)
    except RuntimeError as error:
        note(error)
    assert sum(reported) == metric.bad.item() == rounds * sum(range(1, threads + 1))


@pytest.mark.needs_cuda
def test_errors_outlive_their_metric() -> None:
    metric = Metric()
    metric.step(*labels("cuda", 7))
    del metric
    gc.collect()
    with pytest.raises(RuntimeError, match=r"7 at flat index 3.*Metric: Metric\."):
        syncfree.check_errors()


@pytest.mark.needs_two_gpus
def test_each_device_has_its_records() -> None:
    metrics = [Metric(device=f"cuda:{i}") for i in range(2)]
    metrics[1].slot = metrics[0].slot  # as one metric that was moved
    for i, metric in enumerate(metrics):
        metric.step(*labels(f"cuda:{i}", 7 + i))
    for i in range(2):
        torch.cuda.synchronize(i)
    with pytest.raises(RuntimeError, match=r"on cuda:0: 7 at[^\n]*\n.*on cuda:1: 8 at"):
        _error_records.raise_pending(metrics[0].slot)
    syncfree.check_errors()


@pytest.mark.needs_cuda
@pytest.mark.parametrize("read", [False, True])
def test_unread_errors_warn_at_exit(read: bool) -> None:
    program = f"""
import torch, syncfree
from syncfree.functional import multiclass_accuracy
good, bad = torch.tensor([[0, 1, 2], [0, 1, 7]], device="cuda")
multiclass_accuracy(good, good, 3)  # loads the kernels, which may wait
torch.cuda._sleep(1_000_000_000)  # the host is at its end before the kernel begins
multiclass_accuracy(bad, bad, 3)
try:
    syncfree.check_errors() if {read} else None
except RuntimeError:
    pass
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert ("Never read" in done.stderr) is not read
    assert ("7 at flat index 2" in done.stderr) is not read
