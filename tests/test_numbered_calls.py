"""Steps of accuracy's classes without Python around the op: the same counts, and errors."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from syncfree._ops import accuracy as ops
from syncfree._ops import quick_calls
from syncfree.classification import MulticlassAccuracy, _counting
from syncfree.functional.classification import multiclass_accuracy
from syncfree.functional.classification._call import numbered
from test_checked_calls import batch
from test_quick_calls import Subclass, outcome


def states(device: str = "cpu") -> tuple[Tensor, ...]:
    return tuple(torch.zeros(1, dtype=torch.int64, device=device) for _ in range(5))


def flags(validate: bool) -> int:
    return ops.pack_options("micro", False, None, validate)[0] | ops.task_bits("multiclass")


@pytest.mark.parametrize("op", [ops.UPDATE, ops.FORWARD], ids=["update", "forward"])
@pytest.mark.parametrize(
    ("own", "change"),
    [
        ((4, 1), lambda preds, target: (preds, target)),
        ((4, 5), lambda preds, target: (preds, target)),
        ((4,), lambda preds, target: (preds, target)),
        ((4, 1, 1), lambda preds, target: (preds, target)),
        ([4, 1], lambda preds, target: (preds, target)),
        ((4, None), lambda preds, target: (preds, target)),
        ((4, 1), lambda preds, target: (preds, target + 4)),
        ((4, 1), lambda preds, target: (preds, target[:2])),
        ((4, 1), lambda preds, target: (preds, target.tolist())),
        ((4, 1), lambda preds, target: (preds.as_subclass(Subclass), target)),
        ((3, 1), lambda preds, target: (preds, target.clamp(max=2))),
    ],
)
@pytest.mark.parametrize("validate", [True, False])
def test_same_counts(
    op: Any, own: Any, change: Callable[..., Any], validate: bool, device: str
) -> None:
    """Of a step of a class: the same answer, and the same in the states."""
    outcomes = []
    for way in numbered(op["multiclass"]):
        counts = states(device)
        tensors = *change(*batch(device)), *counts
        for _ in range(2):
            told = outcome(lambda way=way, given=tensors: way(given, own, flags(validate), 0))
            outcomes.append((told, [count.item() for count in counts]))
    assert outcomes[:2] == outcomes[2:]


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors, own, options, last: (list(tensors), own, options, last),
        lambda tensors, own, options, last: (tensors, own, options, last, 0),
        lambda tensors, own, options, last: (tensors, own, options),
        lambda tensors, own, options, last: (tensors, own, float(options), last),
        lambda tensors, own, options, last: (tensors, own, 2**70, last),
        lambda tensors, own, options, last: (tensors[:-1], own, options, last),
        lambda tensors, own, options, last: (tensors + (tensors[0],) * 20, own, options, last),
        lambda *_: (),
    ],
)
def test_groups_that_do_not_fit(change: Callable[..., Any]) -> None:
    call = quick_calls.numbering(
        ops.ACCURACY["multiclass"],
        lambda _: pytest.fail("numbered"),
        ops.VALIDATE,
        lambda *_: pytest.fail("answered"),
        lambda *_: "usual",
    )
    assert call(*change(batch(), (4, 1), flags(True), 0)) == "usual"


def test_steps_of_classes_take_the_quick_way() -> None:
    for ways in (_counting._UPDATE, _counting._FORWARD):
        assert {task: type(quick).__name__ for task, (quick, _) in ways.items()} == dict.fromkeys(
            ("binary", "multiclass", "multilabel"), "Callable"
        )


@pytest.mark.parametrize("target", [batch()[1] + 4, batch()[1][:3]], ids=["labels", "shape"])
@pytest.mark.parametrize("kind", ["function", "update", "forward"])
def test_errors_keep_no_batch(kind: str, target: Tensor) -> None:
    """Who catches one and tries again with less memory has it at once, without a collection."""
    metric = MulticlassAccuracy(4)
    call: Callable[..., Any] = {
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
            call(preds, target)
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

    call = quick_calls.numbering(
        torch.ops.syncfree_tests.raises.default, int, 1, failed, lambda *_: None
    )
    with pytest.raises(RuntimeError, match="from a kernel") as caught:
        call(batch(), (), 0, 0)
    assert "kernel" in [each.name for each in caught.traceback]


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
