"""Steps of accuracy's classes without Python around the op: the same counts, and errors."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import weakref
from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import BaseTorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

import syncfree
from syncfree._ops import accuracy as ops
from syncfree._ops import quick_calls
from syncfree.classification import MulticlassAccuracy, _counting
from syncfree.functional.classification import multiclass_accuracy
from syncfree.functional.classification._call import call, stepping
from test_checked_calls import batch, value_of_batch
from test_quick_calls import Outcome, Subclass, outcome

NAMES = "tp", "fp", "tn", "fn", "_bad"
OPTIONS = "own", "flags", "last"


def flags(validate: bool) -> int:
    return ops.pack_options("micro", False, None, validate)[0] | ops.task_bits("multiclass")


def attributes(own: Any = (4, 1), validate: bool = True, device: str = "cpu") -> dict[str, Any]:
    states = {name: torch.zeros(1, dtype=torch.int64, device=device) for name in NAMES}
    return {**states, "own": own, "flags": flags(validate), "last": 0}


def counts(metric: dict[str, Any]) -> list[int]:
    return [metric[name].item() for name in NAMES]


def through_python(op: Any, metric: dict[str, Any], preds: Any, target: Any) -> Any:
    states = [metric[name] for name in NAMES]
    return call(op, (preds, target, *states), *(metric[name] for name in OPTIONS))


def met(step: Callable[[], Any], device: str) -> Outcome:
    """The outcome of a step whose bad labels, on CUDA, the next one tells of for certain.

    Without the place of the call, which is another line where Python is between.
    """
    kind, answer = outcome(step)
    if device == "cuda":
        torch.cuda.synchronize()
    return kind, answer.partition(" Call: file ")[0] if isinstance(answer, str) else answer


@pytest.mark.parametrize("op", [ops.UPDATE, ops.FORWARD], ids=["update", "forward"])
@pytest.mark.parametrize(
    ("own", "change"),
    [
        ((4, 1), lambda preds, target: (preds, target)),
        ((4, 5), lambda preds, target: (preds, target)),
        ((4, 1), lambda preds, target: (preds, target + 4)),
        ((4, 1), lambda preds, target: (preds, target[:2])),
        ((3, 1), lambda preds, target: (preds, target.clamp(max=2))),
    ],
)
@pytest.mark.parametrize("validate", [True, False])
def test_same_counts(
    op: Any, own: Any, change: Callable[..., Any], validate: bool, device: str
) -> None:
    """Of a step: the same answer or error, and the same in the states."""
    tensors = change(*batch(device))
    ways = stepping(op["multiclass"], NAMES, OPTIONS), partial(through_python, op["multiclass"])
    told = []
    for way in ways:
        metric = attributes(own, validate, device)
        calls = [met(lambda way=way, given=metric: way(given, *tensors), device) for _ in range(2)]
        with contextlib.suppress(RuntimeError):
            syncfree.check_errors()
        told.append((repr(calls), counts(metric)))
    metric = attributes(own, False, device)
    given = *tensors, *(metric[name] for name in NAMES), *own, metric["flags"], metric["last"]
    if outcome(lambda: op["multiclass"](*given))[0] == "ValueError":
        # Other shapes may fit, for which Python has to look.
        assert told[0] == (repr([outcome(lambda: NotImplemented)] * 2), [0] * len(NAMES))
    else:
        assert told[0] == told[1]


class Steps:
    """A step of which none is to be numbered or to fail."""

    def __init__(self) -> None:
        self.call = quick_calls.stepping(
            ops.UPDATE["multiclass"],
            NAMES,
            OPTIONS,
            lambda _: pytest.fail("numbered"),
            ops.VALIDATE,
            lambda *_: pytest.fail("answered"),
        )


UNFIT: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no state": lambda metric: metric.pop("fp"),
    "no options": lambda metric: metric.pop("own"),
    "no flags": lambda metric: metric.pop("flags"),
    "a list": lambda metric: metric.update(tp=[]),
    "None": lambda metric: metric.update(tp=None),
    "another dtype": lambda metric: metric.update(_bad=metric["_bad"].double()),
    "a subclass": lambda metric: metric.update(tn=metric["tn"].as_subclass(Subclass)),
    "a list of options": lambda metric: metric.update(own=[4, 1]),
    "too few options": lambda metric: metric.update(own=(4,)),
    "too many options": lambda metric: metric.update(own=(4, 1, 1)),
    "many too many options": lambda metric: metric.update(own=(4,) * 30),
    "an option that is None": lambda metric: metric.update(own=(4, None)),
    "floating flags": lambda metric: metric.update(flags=float(metric["flags"])),
    "large flags": lambda metric: metric.update(flags=2**70),
}


@pytest.mark.parametrize("change", UNFIT.values(), ids=UNFIT)
def test_where_python_has_to_look(change: Callable[[dict[str, Any]], Any]) -> None:
    metric = attributes()
    change(metric)
    assert Steps().call(metric, *batch()) is NotImplemented


def test_arguments_for_python() -> None:
    step = Steps().call
    preds, target = batch()
    metric = attributes()
    for arguments in (
        (),
        (metric,),
        (metric, preds),
        (metric, preds, target, target),
        (metric, preds, target.tolist()),
        (metric, preds.as_subclass(Subclass), target),
        (MappingProxyType(metric), preds, target),
        (None, preds, target),
    ):
        assert step(*arguments) is NotImplemented
    assert step(metric, preds, target=target) is NotImplemented
    with BaseTorchFunctionMode():
        assert step(metric, preds, target) is NotImplemented
    with FlopCounterMode(display=False):
        assert step(metric, preds, target) is NotImplemented
    assert counts(metric) == [0] * len(NAMES)


def test_names_that_are_none() -> None:
    never = lambda *_: pytest.fail("called")  # noqa: E731
    for states, options in (
        (NAMES[:-1], OPTIONS),
        ((*NAMES, "more"), OPTIONS),
        ((1,) * 5, OPTIONS),
    ):
        step = quick_calls.stepping(
            ops.UPDATE["multiclass"], states, options, never, ops.VALIDATE, never
        )
        assert step(attributes(), *batch()) is NotImplemented
    step = quick_calls.stepping(
        ops.UPDATE["multiclass"], NAMES, OPTIONS[:2], never, ops.VALIDATE, never
    )
    assert step(attributes(), *batch()) is NotImplemented


def test_steps_of_classes_take_the_quick_way() -> None:
    for ways in (_counting._UPDATE, _counting._FORWARD):
        kinds = {task: type(quick).__name__ for task, quick in ways.items() if task is not None}
        assert kinds == dict.fromkeys(("binary", "multiclass", "multilabel"), "Callable")
    metric = MulticlassAccuracy(4, average="micro")
    for ways in (_counting._UPDATE, _counting._FORWARD):
        assert ways["multiclass"](metric.__dict__, *batch()) is not NotImplemented
    assert metric.compute() == value_of_batch()


@pytest.mark.parametrize("target", [batch()[1] + 4, batch()[1][:3]], ids=["labels", "shape"])
@pytest.mark.parametrize("kind", ["function", "update", "forward"])
def test_errors_keep_no_batch(kind: str, target: Tensor) -> None:
    """Who catches one and tries again with less memory has it at once, without a collection."""
    metric = MulticlassAccuracy(4)
    run: Callable[..., Any] = {
        "function": lambda *tensors: multiclass_accuracy(*tensors, 4),
        "update": metric.update,
        "forward": metric,
    }[kind]
    gc.collect()
    gc.disable()
    try:
        preds = torch.rand(12, 4)
        held = weakref.ref(preds)
        with contextlib.suppress(RuntimeError, ValueError):
            run(preds, target)
            pytest.fail("no error")
        del preds
        assert held() is None
    finally:
        gc.enable()


def test_errors_show_where_a_kernel_raised() -> None:
    library = torch.library.Library("syncfree_tests", "FRAGMENT")
    library.define("raises(Tensor a, Tensor b, int flags, int last) -> Tensor")

    def kernel(*_: Any) -> Tensor:
        raise RuntimeError("from a kernel")

    library.impl("raises", kernel, "CPU")

    def failed(error: Exception, *_: Any) -> None:
        raise error

    step = quick_calls.stepping(
        torch.ops.syncfree_tests.raises.default, (), ("own", "flags", "last"), int, 1, failed
    )
    with pytest.raises(RuntimeError, match="from a kernel") as caught:
        step({"own": (), "flags": 0, "last": 0}, *batch())
    assert "kernel" in [each.name for each in caught.traceback]


def test_memory_that_is_not_there() -> None:
    """A MemoryError, as torch's own way to the op raises it."""
    program = """
import resource, torch
from syncfree.functional.classification import multiclass_accuracy
labels = torch.zeros(1, dtype=torch.int64)
multiclass_accuracy(labels, labels, 9)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, used + 2**30))
try:
    multiclass_accuracy(labels, labels, 2**31 - 1)
except MemoryError as error:
    print(type(error).__name__)
"""
    command = [sys.executable, "-c", program]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.stdout == "MemoryError\n", told.stderr


@pytest.mark.filterwarnings("default::UserWarning")
def test_errors_beside_a_warning_of_torch() -> None:
    """Under vmap torch warns that it calls in a loop, and then there is an error."""
    preds, target = torch.rand(2, 12, 4), torch.randint(3, (2, 12))
    options = 3, "micro", 1, "global", None
    with pytest.raises(ValueError, match="shape"):
        torch.vmap(lambda a, b: multiclass_accuracy(a, b[:2], 4))(preds, target)
    with pytest.raises(RuntimeError, match="Detected"):
        torch.vmap(lambda a, b: multiclass_accuracy(a, b + 4, 4))(preds, target)
    values = torch.vmap(lambda a, b: multiclass_accuracy(a, b, *options, False))(preds, target)
    for value, each, labels in zip(values, preds, target, strict=True):
        assert torch.equal(value, (each.argmax(1) == labels).float().mean())


def test_errors_show_the_call() -> None:
    preds, target = batch()
    with pytest.raises(RuntimeError, match="Detected") as caught:
        multiclass_accuracy(preds, target + 4, 4)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    names = [each.name for each in caught.traceback]
    assert names[:2] == ["test_errors_show_the_call", "multiclass_accuracy"]
