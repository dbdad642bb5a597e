"""Calls of accuracy without Python around the op: the same answers, with options checked once."""

from __future__ import annotations

import contextlib
import gc
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import BaseTorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from syncfree._ops import accuracy as ops
from syncfree._ops import psnr, quick_calls
from syncfree.classification import MulticlassAccuracy, _counting
from syncfree.functional.classification import accuracy, multiclass_accuracy
from syncfree.functional.classification._call import numbered
from test_quick_calls import Subclass, outcome

# Of functional.classification.accuracy the module, not the function of that name.
FUNCTIONS = sys.modules[multiclass_accuracy.__module__]
WAYS = {
    task: (getattr(FUNCTIONS, f"_{task}"), getattr(FUNCTIONS, f"_{task}_in_graph"))
    for task in ("binary", "multiclass", "multilabel")
}
MOST_KEPT = 8  # csrc/call/checked_call.cpp


def batch(device: str = "cpu") -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    preds = torch.rand(12, 4, generator=generator)
    return preds.to(device), torch.randint(4, (12,), generator=generator).to(device)


def labels(device: str = "cpu") -> tuple[Tensor, Tensor]:
    preds, _ = batch(device)
    return preds, (preds > 0.3).long()


class Index:
    """An integer to some, of a value that changes."""

    def __init__(self) -> None:
        self.value = 0

    def __index__(self) -> int:
        self.value += 1
        return self.value


OPTIONS: dict[str, list[tuple[Any, ...]]] = {
    "binary": [
        (0.5, "global", None, True),
        (0.5, "global", 1, True),
        (0.25, "samplewise", None, False),
        (True, "global", None, True),
        (1, "global", None, True),
        (np.float64(0.25), "global", None, False),
        (torch.tensor(0.25), "global", None, False),
        (float("nan"), "global", None, True),
        ("0.5", "global", None, True),
        (0.5, "local", None, True),
        (0.5, "global", None),
        (0.5, "global", None, True, 1),
        (),
    ],
    "multiclass": [
        (4, "macro", 1, "global", None, True),
        (4, "micro", 1, "global", None, True),
        (4, None, 2, "global", 2, True),
        (4, "weighted", 1, "global", -100, False),
        (None, "micro", 1, "global", None, True),
        (None, "macro", 1, "global", None, True),
        (True, "micro", 1, "global", None, False),
        (4.0, "micro", 1, "global", None, True),
        (4.0, "micro", 1, "global", None, False),
        (np.int64(4), "micro", 1, "global", None, False),
        (4, "micro", True, "global", None, True),
        (4, "micro", 5, "global", None, True),
        (4, ["micro"], 1, "global", None, True),
        (4, "mean", 1, "global", None, True),
        (4, "micro", 1, "samplewise", None, True),
        (3, "micro", 1, "global", None, True),  # shapes that do not fit
        (3, "micro", 1, "global", None, False),  # and that TorchMetrics takes
        (2**70, "micro", 1, "global", None, True),
    ],
    "multilabel": [
        (4, 0.5, "macro", "global", None, True),
        (4, 0.5, "none", "global", 0, True),
        (4, 0.5, "micro", "samplewise", None, False),
        (5, 0.5, "macro", "global", None, True),
    ],
}


@pytest.mark.parametrize(
    ("task", "options"), [(task, each) for task in OPTIONS for each in OPTIONS[task]], ids=str
)
def test_same_answers(task: str, options: tuple[Any, ...], device: str) -> None:
    tensors = batch(device) if task == "multiclass" else labels(device)
    quick, usual = WAYS[task]
    expected = outcome(lambda: usual(*tensors, *options))
    for _ in range(3):
        assert outcome(lambda: quick(*tensors, *options)) == expected


def test_same_answers_by_turns() -> None:
    """More sets of options than are kept, and sets that are equal but for a type."""
    quick, usual = WAYS["multiclass"]
    tensors = batch()
    assert len(OPTIONS["multiclass"]) > 2 * MOST_KEPT
    for _ in range(3):
        for options in (*OPTIONS["multiclass"], *reversed(OPTIONS["multiclass"])):
            expected = outcome(lambda each=options: usual(*tensors, *each))
            assert outcome(lambda each=options: quick(*tensors, *each)) == expected


@pytest.mark.parametrize(
    "tensors",
    [
        (None, batch()[1]),
        (batch()[0], [1] * 12),
        (batch()[0].as_subclass(Subclass), batch()[1]),
        (batch()[0], batch()[1] + 4),  # labels out of range
        (batch()[0], batch()[1][:3]),
        (batch()[0].to_sparse(), batch()[1]),
        (torch.nn.Parameter(batch()[0]), batch()[1]),
    ],
)
def test_same_answers_for_any_tensors(tensors: tuple[Any, Any]) -> None:
    quick, usual = WAYS["multiclass"]
    options = 4, "micro", 1, "global", None, True
    expected = outcome(lambda: usual(*tensors, *options))
    for _ in range(2):
        assert outcome(lambda: quick(*tensors, *options)) == expected


def test_meta_tensors() -> None:
    preds, target = (each.to("meta") for each in batch())
    for _ in range(2):
        assert multiclass_accuracy(preds, target, 4).is_meta


class Checks:
    """Counts how often options are checked, calls numbered, and calls passed on."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.asked: list[tuple[Any, ...]] = []
        self.numbered: list[int] = []
        self.failures: list[tuple[Any, ...]] = []
        self.call = quick_calls.checking(
            ops.ACCURACY["multiclass"],
            self.check,
            self.number,
            ops.VALIDATE,
            self.failed,
            self.usual,
        )

    def check(self, *options: Any) -> Any:
        self.asked.append(options)
        classes, validate = options
        flags, last = ops.pack_options("micro", False, None, bool(validate))
        return ((int(classes), 1), flags, last) if self.answer is None else self.answer

    def number(self, flags: int) -> int:
        self.numbered.append(flags)
        return flags | len(self.numbered) << 20

    def failed(self, *arguments: Any) -> str:
        self.failures.append(arguments)
        return "failed"

    def usual(self, *_: Any, **__: Any) -> str:
        return "usual"


def value_of_batch() -> Tensor:
    preds, target = batch()
    return (preds.argmax(1) == target).float().mean()


def test_constants_are_checked_once() -> None:
    checks = Checks()
    for _ in range(5):
        assert torch.equal(checks.call(*batch(), int("4"), True), value_of_batch())
    assert len(checks.asked) == 1
    # Equal, but of another type.
    for classes, validate in ((4.0, True), (4, 1), (4.0, 1.0)):
        for _ in range(3):
            checks.call(*batch(), classes, validate)
    assert [tuple(map(type, each)) for each in checks.asked] == [
        (int, bool),
        (float, bool),
        (int, int),
        (float, float),
    ]


@pytest.mark.parametrize("classes", [np.int64(4), torch.tensor(4)])
def test_what_may_change_is_checked_each_time(classes: Any) -> None:
    checks = Checks()
    for i in range(3):
        assert torch.equal(checks.call(*batch(), classes, False), value_of_batch())
        assert len(checks.asked) == i + 1


def test_what_has_changed_counts() -> None:
    checks = Checks()
    classes = Index()
    for i in (1, 2, 3):
        assert checks.call(*batch(), classes, True) == "failed"  # scores have 4 columns
        assert classes.value == i
    assert torch.equal(checks.call(*batch(), classes, True), value_of_batch())
    assert len(checks.asked) == 4


def test_the_oldest_go() -> None:
    checks = Checks()
    preds = torch.rand(3, 40)
    for classes in range(4, 4 + MOST_KEPT):
        checks.call(preds[:, :classes], torch.zeros(3, dtype=torch.int64), classes, True)
    asked = len(checks.asked)
    for classes in range(4, 4 + MOST_KEPT):
        checks.call(preds[:, :classes], torch.zeros(3, dtype=torch.int64), classes, True)
    assert len(checks.asked) == asked == MOST_KEPT
    checks.call(preds, torch.zeros(3, dtype=torch.int64), 40, True)
    checks.call(preds[:, :4], torch.zeros(3, dtype=torch.int64), 4, True)
    assert len(checks.asked) == asked + 2


def test_numbers_of_calls() -> None:
    checks = Checks()
    validated, _ = ops.pack_options("micro", False, None, True)
    for _ in range(3):
        checks.call(*batch(), 4, True)
        checks.call(*batch(), 4, False)
    assert checks.numbered == [validated] * 3


def test_a_number_that_fails() -> None:
    checks = Checks()
    checks.numbered = None  # type: ignore[assignment]
    with pytest.raises(AttributeError, match="append"):
        checks.call(*batch(), 4, True)
    assert not checks.failures


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [(4, 1), 8, 0],
        ([4, 1], 8, 0),
        ((4, 1), True, 0),
        ((4, 1), 8.0, 0),
        ((4, 1), 8),
        ((4,), 8, 0),
        ((4, 1, 1), 8, 0),
        ((4, "1"), 8, 0),
        ((4, 2**70), 8, 0),
        ((), 8, 0),
    ],
)
def test_answers_that_are_not_known(answer: Any) -> None:
    checks = Checks("nothing" if answer is None else answer)
    for _ in range(2):
        assert checks.call(*batch(), 4, True) == "usual"


def test_a_check_that_refuses() -> None:
    checks = Checks()
    for _ in range(2):
        with pytest.raises(ValueError, match="not enough values"):
            checks.call(*batch(), 4)
    assert not checks.failures


def test_failures_of_the_operator_are_answered() -> None:
    checks = Checks()
    preds, target = batch()
    assert checks.call(preds, target + 4, 4, True) == "failed"
    assert checks.call(preds, target[:3], 4, True) == "failed"
    (bad, *given), (shape, *_) = checks.failures
    assert type(bad) is RuntimeError
    assert str(bad).startswith("Detected")
    assert type(shape) is ValueError
    assert given[0] is preds
    assert given[2:] == [4, True]
    # An answer leaves nothing behind.
    assert sys.exc_info() == (None, None, None)
    assert torch.equal(checks.call(preds, target, 4, True), value_of_batch())


def test_other_errors_are_not() -> None:
    call = quick_calls.checking(
        psnr.psnr,
        lambda dim: ((1.0, None, 10.0), 1, dim),
        lambda _: pytest.fail("numbered"),
        2,
        lambda *_: pytest.fail("answered"),
        lambda *_: pytest.fail("usual"),
    )
    images = torch.rand(2, 3), torch.rand(2, 3)
    assert torch.equal(call(*images, [0, 1]), psnr.psnr(*images, 1.0, None, 10.0, 1, [0, 1]))
    with pytest.raises(IndexError, match="7"):
        call(*images, [7])


class FunctionMode(BaseTorchFunctionMode):
    pass


class DispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        return function(*args, **(kwargs or {}))


def under(mode: Callable[[], Any]) -> Callable[[Checks], Any]:
    def call(checks: Checks) -> Any:
        tensors = batch()
        with mode():
            return checks.call(*tensors, 4, True)

    return call


def traced(checks: Checks) -> Any:
    seen = []

    def step(preds: Tensor, target: Tensor) -> Tensor:
        seen.append(checks.call(preds, target, 4, True))
        return preds

    torch.jit.trace(step, batch(), check_trace=False)
    return seen[0]


UNUSUAL: dict[str, Callable[[Checks], Any]] = {
    "keywords": lambda checks: checks.call(*batch(), 4, validate=True),
    "a subclass": lambda checks: checks.call(batch()[0].as_subclass(Subclass), batch()[1], 4, True),
    "no tensors": lambda checks: checks.call(1, 2, 4, True),
    "None": lambda checks: checks.call(batch()[0], None, 4, True),
    "one argument": lambda checks: checks.call(batch()[0]),
    "none": lambda checks: checks.call(),
    "a function mode": under(FunctionMode),
    "a dispatch mode": under(DispatchMode),
    "fakes": under(FakeTensorMode),
    "torch.jit.trace": traced,
}


@pytest.mark.filterwarnings("ignore:`torch.jit.trace` is deprecated")
@pytest.mark.parametrize("call", UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_calls(call: Callable[[Checks], Any]) -> None:
    checks = Checks()
    checks.call(*batch(), 4, True)
    assert call(checks) == "usual"
    assert len(checks.asked) == 1


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


def test_threads() -> None:
    quick, usual = WAYS["multiclass"]
    tensors = batch()
    options = [(4, "micro", 1, "global", i, True) for i in range(4)] * 4
    options += [(4, "macro", k, "global", None, True) for k in range(1, 5)] * 4
    expected = [usual(*tensors, *each).item() for each in options]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            got = pool.map(lambda each: quick(*tensors, *each).item(), options)
            assert list(got) == expected


def test_nothing_is_kept() -> None:
    preds, target = batch()
    quick, _ = WAYS["multiclass"]
    classes = np.int64(4)

    def repeat() -> None:
        for _ in range(100):
            quick(preds, target, 4, "micro", 1, "global", None, True)
            quick(preds, target, classes, "micro", 1, "global", None, False)
            with pytest.raises(RuntimeError):
                quick(preds, target + 4, 4, "micro", 1, "global", None, True)
            with pytest.raises(ValueError, match="shape"):
                quick(preds, target[:1], 4, "micro", 1, "global", None, True)
            with pytest.raises(ValueError, match="average"):
                quick(preds, target, 4, "mean", 1, "global", None, True)

    kept = preds, target, classes, quick, quick.usual
    repeat()
    gc.collect()
    before = [sys.getrefcount(each) for each in kept]
    repeat()
    gc.collect()
    after = [sys.getrefcount(each) for each in kept]
    assert all(abs(a - b) < 50 for a, b in zip(before, after, strict=True))


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


def test_the_quick_way_is_taken() -> None:
    """Otherwise all tests here would compare Python with itself."""
    for quick, usual in WAYS.values():
        assert type(quick).__name__ == "Callable"
        assert quick.usual is usual
    assert accuracy(*batch(), task="multiclass", num_classes=4) == value_of_batch()
