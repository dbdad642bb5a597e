"""Slots of metrics and numbers of calls, by which an error says where it comes from."""

from __future__ import annotations

import gc
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

import syncfree
from accuracy_metric import Counting, Options
from deferred_cases import CLASSES, MACRO, Metric, current_line, labels
from syncfree import _error_records
from syncfree.functional.classification import multiclass_accuracy


@pytest.fixture(autouse=True)
def _nothing_left() -> None:
    syncfree.check_errors()


def test_slots_differ_and_come_back() -> None:
    gc.collect()
    metrics = [Metric(device="cpu") for _ in range(50)]
    slots = {metric.slot for metric in metrics}
    assert len(slots) == 50
    assert 0 not in slots
    free = len(_error_records._free)
    del metrics
    gc.collect()
    assert len(_error_records._free) == free + 50
    # Kernels of a metric that is gone may still be running.
    assert Metric(device="cpu").slot not in slots


def test_a_slot_that_comes_back_accuses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its last owner left is told of, under that owner's name."""
    left = ["bad label. [syncfree metric 7, call 0]"]

    def take(slot: int) -> str:
        text = "".join(left) if slot in (7, -1) else ""
        return _error_records._MARK.sub(_error_records._origin, text)

    monkeypatch.setattr(_error_records, "_free", type(_error_records._free)([7]))
    monkeypatch.setattr(_error_records, "_owners", {7: "Former"})
    monkeypatch.setattr(_error_records, "_take", take)
    metric = Metric(device="cpu")
    left.clear()
    assert metric.slot == 7
    _error_records.raise_pending(7)
    with pytest.raises(RuntimeError, match=r"^bad label\. Metric: Former\.$"):
        _error_records.raise_all()
    _error_records.raise_all()


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Errors on a GPU that come to the host only once it waits."""
    seen: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: seen.append(f"bad on {device}."))
    known = torch.ops.syncfree
    monkeypatch.setattr(known, "has_error_record", lambda device: device == 1, raising=False)
    monkeypatch.setattr(_error_records, "_take", lambda slot: " ".join(seen))
    monkeypatch.delattr(sys, "last_value", raising=False)
    return seen


def test_the_end_of_a_program_is_behind_its_kernels(late: list[str]) -> None:
    with pytest.warns(UserWarning, match=r"^Never read before .*: bad on 1\.$"):
        _error_records._warn_of_unread()


@pytest.mark.parametrize("reason", ["exception", "group"])
def test_a_program_does_not_wait_at_its_end_for_what_may_never_come(
    late: list[str], monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    if reason == "exception":
        monkeypatch.setattr(sys, "last_value", OSError(), raising=False)
    else:
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _error_records._warn_of_unread()
    late.append("seen in time.")
    with pytest.warns(UserWarning, match=r": seen in time\.$"):
        _error_records._warn_of_unread()


def test_kernels_that_fail_do_not_hide_an_error_at_the_end(
    late: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(device: int) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", fail)
    late.append("seen in time.")
    with pytest.warns(UserWarning, match=r": seen in time\.$"):
        _error_records._warn_of_unread()


def test_more_metrics_than_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_error_records, "_free", type(_error_records._free)([7]))
    metrics = [Metric(device="cpu") for _ in range(3)]
    assert [metric.slot for metric in metrics] == [7, 0, 0]


def test_origin_is_named() -> None:
    metric = Metric(device="cpu")
    bits = _error_records.with_call(_error_records.slot_bits(metric.slot))
    line = current_line() - 1
    call = bits >> _error_records._CALL_SHIFT
    assert bits >> _error_records._SLOT_SHIFT & 0xFFF == metric.slot
    error = RuntimeError(f"Wrong. [syncfree metric {metric.slot}, call {call}]\nMore.", 3)
    assert _error_records.explain(error) is error
    assert error.args == (f'Wrong. Metric: Metric. Call: file "{__file__}", line {line}.\nMore.', 3)


def test_code_of_the_packages_is_not_the_origin() -> None:
    source = "def call(function, *args):\n    return function(*args)\n"
    scope: dict[str, object] = {}
    package = Path(syncfree.__file__).parent
    exec(compile(source, str(package / "somewhere.py"), "exec"), scope)
    bits = scope["call"](scope["call"], _error_records.with_call, 0)  # type: ignore[operator]
    line = current_line() - 1
    call = bits >> _error_records._CALL_SHIFT
    error = _error_records.explain(RuntimeError(f" [syncfree metric 0, call {call}]"))
    assert str(error) == f' Call: file "{__file__}", line {line}.'


def test_old_calls_are_forgotten_not_mixed_up() -> None:
    first = _error_records.with_call(0) >> _error_records._CALL_SHIFT
    for _ in range(4096):
        _error_records.with_call(0)
    assert str(_error_records.explain(RuntimeError(f"E [syncfree metric 0, call {first}]"))) == "E"


def test_threads_get_calls_of_their_own() -> None:
    with ThreadPoolExecutor(8) as pool:
        bits = list(pool.map(lambda _: _error_records.with_call(3), range(2000)))
    assert len(set(bits)) == 2000


@pytest.mark.parametrize("options", [MACRO, Options("binary"), Options("multilabel", 3, "none")])
def test_origin_leaves_results_alone(options: Options, device: str) -> None:
    preds = torch.rand(6, 3, device=device).round()
    target = torch.ones(6, 3, dtype=torch.int64, device=device)
    with_origin, plain = Counting(options, device), Counting(options, device)
    bits = 0xFFF << _error_records._SLOT_SHIFT | (2**43 - 1) << _error_records._CALL_SHIFT
    value = with_origin.forward(preds, target, bits)
    assert torch.equal(value, plain.forward(preds, target))
    assert all(map(torch.equal, with_origin.states, plain.states))
    assert torch.equal(with_origin.compute(bits), plain.compute())


class Step(torch.nn.Module):
    def forward(self, preds: Tensor, target: Tensor) -> Tensor:
        return multiclass_accuracy(preds, target, CLASSES)


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_traced_calls_have_no_number() -> None:
    """With one, each trace would differ from the last, which torch takes for a mistake."""
    pair = labels("cpu")
    assert torch.jit.trace(Step(), pair)(*pair) == 1


@pytest.mark.parametrize("strict", [False, True])
def test_exported_calls_have_no_number(strict: bool) -> None:
    """In the process that runs the graph it would be that of another call."""
    exported = torch.export.export(Step(), labels("cpu"), strict=strict)
    (call,) = (node for node in exported.graph.nodes if node.op == "call_function")
    *_, options, _ = call.args
    assert options >> 8 == 0


def test_compiled_calls_have_a_slot_and_no_number(device: str) -> None:
    def step(preds: Tensor, target: Tensor) -> Tensor:
        bits = _error_records.slot_bits(metric.slot)
        _error_records.raise_pending(metric.slot)
        return metric.forward(preds, target, bits)

    metric, plain = Metric(device=device), Counting(MACRO, device)
    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    with torch._dynamo.config.patch(error_on_recompile=True):
        for _ in range(3):
            assert torch.equal(compiled(*labels(device)), plain.forward(*labels(device)))
