"""Options that are checked once: the answers are those of options checked anew."""

from __future__ import annotations

import sys
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

from reference_counts import assert_nothing_is_kept
from syncfree._ops import accuracy as ops
from syncfree._ops import psnr, quick_calls
from syncfree.functional.classification import accuracy, multiclass_accuracy
from test_quick_calls import Subclass, outcome

# Of functional.classification.accuracy the module, not the function of that name.
FUNCTIONS = sys.modules[multiclass_accuracy.__module__]
WAYS = {
    task: (getattr(FUNCTIONS, f"_{task}"), getattr(FUNCTIONS, f"_{task}_in_graph"))
    for task in ("binary", "multiclass", "multilabel")
}
MOST_KEPT = 8  # csrc/call/kept_options.h


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
        return (int(classes), 1, flags, last) if self.answer is None else self.answer

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
        [4, 1, 8, 0],
        ((4, 1), 8, 0),
        (4, 1, True, 0),
        (4, 1, 8.0, 0),
        (4, 1, 8),
        (4, 1, 1, 8, 0),
        (4, "1", 8, 0),
        (4, 2**70, 8, 0),
        (4, 1, 8, None),
        (),
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
        lambda dim: (1.0, None, 10.0, 1, dim),
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

    assert_nothing_is_kept(repeat, (preds, target, classes, quick, quick.usual))


def test_the_quick_way_is_taken() -> None:
    """Otherwise all tests here would compare Python with itself."""
    for quick, usual in WAYS.values():
        assert type(quick).__name__ == "Callable"
        assert quick.usual is usual
    assert accuracy(*batch(), task="multiclass", num_classes=4) == value_of_batch()
