"""Calls past torch's own conversions: the same results and errors, and all who listen are told."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from reference_counts import assert_nothing_is_kept
from syncfree._installation import find_file
from syncfree._ops import accuracy, psnr, quick_calls, safe_divide, ssim
from test_ops import NAMES, TABLE, WITHOUT_TENSORS, accuracy_arguments
from without_libraries import prints_an_accuracy

Outcome = tuple[str, Any]


def outcome(call: Callable[[], Any]) -> Outcome:
    """The result, or type and text of the error."""
    try:
        result = call()
    except Exception as error:
        return type(error).__name__, str(error).partition("\nException raised from")[0]
    results = result if isinstance(result, tuple) else (result,)
    values = [r.double().cpu().tolist() if isinstance(r, Tensor) else r for r in results]
    return type(result).__name__, values


def both(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    quick = getattr(torch.ops.syncfree, name).default._op
    return quick, quick.usual


def arguments_of(name: str, device: str) -> tuple[Any, ...]:
    torch.manual_seed(0)
    return TABLE[name](device) if name in TABLE else accuracy_arguments(name, device)


def batch() -> tuple[Any, ...]:
    return accuracy_arguments("multiclass_accuracy", "cpu")


def test_the_module_is_there() -> None:
    """Without it all tests here would compare torch with itself."""
    assert find_file(f"lib/{quick_calls.module_file()}") is not None
    assert quick_calls._module() is not None


WITH_RESULTS = [name for name in NAMES if name not in WITHOUT_TENSORS]


@pytest.mark.parametrize("name", WITH_RESULTS)
def test_same_results(name: str, device: str) -> None:
    quick, usual = both(name)
    # Arguments of their own: some are counted into.
    assert outcome(lambda: quick(*arguments_of(name, device))) == outcome(
        lambda: usual(*arguments_of(name, device))
    )


class Subclass(Tensor):
    pass


def changed(place: int, value: Any) -> tuple[Any, ...]:
    arguments = list(batch())
    arguments[place] = value
    return tuple(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        batch()[:-1],
        (*batch(), 1),
        changed(0, None),
        changed(0, [1.0]),
        changed(0, batch()[0].as_subclass(Subclass)),
        changed(1, batch()[1][:2]),
        changed(2, True),
        changed(2, 4.0),
        changed(2, None),
        changed(2, "4"),
        changed(2, np.int64(4)),
        changed(2, torch.tensor(4)),
        changed(2, 2**63),
        changed(2, -(2**70)),
        changed(4, batch()[4] & ~8),
    ],
    ids=str,
)
def test_same_answers_to_unusual_arguments(arguments: tuple[Any, ...]) -> None:
    quick, usual = both("multiclass_accuracy")
    assert outcome(lambda: quick(*arguments)) == outcome(lambda: usual(*arguments))


@pytest.mark.parametrize("dim", [None, [1, 2], (1, 2), [7], [1, 1], [1.0], 1, "1", [], [2**63]])
def test_same_answers_to_lists(dim: Any) -> None:
    quick, usual = both("psnr")
    arguments = *arguments_of("psnr", "cpu")[:-1], dim
    assert outcome(lambda: quick(*arguments)) == outcome(lambda: usual(*arguments))


@pytest.mark.parametrize("sigma", [[1.5], (1.5,), [1.5, 2.5], [1], [True], None, 1.5, [None]])
def test_same_answers_to_lists_of_floats(sigma: Any) -> None:
    quick, usual = both("ssim")
    arguments = list(arguments_of("ssim", "cpu"))
    arguments[3] = sigma
    assert outcome(lambda: quick(*arguments)) == outcome(lambda: usual(*arguments))


def grouped(arguments: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """The arguments of a call, some of them together."""
    return [
        (arguments,),
        (arguments[:2], arguments[2:]),
        (arguments[:2], *arguments[2:]),
        (*arguments[:1], arguments[1:], ()),
        arguments,
    ]


@pytest.mark.parametrize("name", ["multiclass_accuracy", "multiclass_accuracy_top_k", "psnr"])
def test_groups_of_arguments(name: str, device: str) -> None:
    overload = getattr(torch.ops.syncfree, name).default
    quick, usual = both(name)
    assert overload.with_groups.__self__ is quick
    without_module = quick_calls._unpacking(overload)
    arguments = arguments_of(name, device)
    for changed_to in (arguments, arguments[:-1], (*arguments, 1), (None, *arguments[1:])):
        expected = outcome(partial(usual, *changed_to))
        for groups in grouped(changed_to):
            assert outcome(partial(quick.with_groups, *groups)) == expected
            assert outcome(partial(without_module, *groups)) == expected


def test_groups_of_too_many_arguments() -> None:
    quick, usual = both("multiclass_accuracy")
    many = (*batch(), *range(40))
    assert outcome(lambda: quick.with_groups(many)) == outcome(lambda: usual(*many))


@pytest.mark.parametrize("with_groups", ["quick", "unpacking"])
def test_tuples_of_other_types_are_no_groups(with_groups: str) -> None:
    class Pair(tuple[Any, ...]):
        __slots__ = ()

    overload = torch.ops.syncfree.multiclass_accuracy.default
    call = overload.with_groups if with_groups == "quick" else quick_calls._unpacking(overload)
    preds, target, *rest = batch()
    with pytest.raises(RuntimeError, match="Expected a value of type 'Tensor'"):
        call(Pair((preds, target)), *rest)


def test_keywords() -> None:
    *rest, last = batch()
    op = accuracy.ACCURACY["multiclass"]
    assert torch.equal(op(*rest, ignore_index=last), op(*batch()))
    quick, usual = both("multiclass_accuracy")
    for names in ({"nonsense": 1}, {"ignore_index": 1}):
        calls = [partial(call, *batch(), **names) for call in (quick, usual)]
        assert outcome(calls[0]) == outcome(calls[1])


def test_tuples_of_results() -> None:
    bad = torch.zeros(1, dtype=torch.int64)
    preds, target, *_ = batch()
    options, ignored = accuracy.pack_options("macro", True, None, True)
    counts = accuracy.COUNTS["multiclass"](preds, target, bad, 4, 1, options, ignored)
    assert type(counts) is tuple
    assert [type(each) for each in counts] == [Tensor] * 4
    assert sum(each.sum() for each in counts) == target.numel() * 4


def test_function_modes_are_asked() -> None:
    class Mode(TorchFunctionMode):
        seen: list[Any] = []  # noqa: RUF012

        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.seen.append(function)
            return function(*args, **(kwargs or {}))

    with Mode() as mode:
        safe_divide.safe_divide(torch.ones(2), torch.ones(2), 0.0)
    assert any("safe_divide" in str(function) for function in mode.seen)


def test_dispatch_modes_are_asked() -> None:
    class Mode(TorchDispatchMode):
        seen: list[str] = []  # noqa: RUF012

        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.seen.append(str(function))
            return function(*args, **(kwargs or {}))

    arguments = batch()
    with Mode() as mode:
        value = accuracy.ACCURACY["multiclass"](*arguments)
    assert mode.seen == ["syncfree.multiclass_accuracy.default"]
    assert torch.equal(value, accuracy.ACCURACY["multiclass"](*batch()))


def test_fake_tensors() -> None:
    with FakeTensorMode() as mode:
        preds, target, *rest = batch()
        value = accuracy.ACCURACY["multiclass"](
            mode.from_tensor(preds), mode.from_tensor(target), *rest
        )
    assert type(value).__name__ == "FakeTensor"
    assert value.shape == ()


def test_profilers_see_the_operator() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        accuracy.ACCURACY["multiclass"](*batch())
    assert "syncfree::multiclass_accuracy" in {event.name for event in profile.events()}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap() -> None:
    a, b = torch.rand(2, 3, 1, 12, 13, dtype=torch.float64)
    arguments = True, [1.5], [5], 1.0, None, 0.01, 0.03, 1
    mapped = torch.vmap(lambda x, y: ssim.ssim(x[None], y[None], *arguments))(a, b)
    single = [ssim.ssim(x[None], y[None], *arguments) for x, y in zip(a, b, strict=True)]
    torch.testing.assert_close(mapped, torch.stack(single))


def test_nothing_is_kept() -> None:
    preds, target, *rest = batch()
    quick = accuracy.ACCURACY["multiclass"]._op  # type: ignore[attr-defined]

    def repeat() -> None:
        for _ in range(100):
            quick(preds, target, *rest)
            quick.with_groups((preds, target), tuple(rest))
            with pytest.raises(ValueError, match="shape"):
                quick(preds, target[:1], *rest)
            psnr.psnr(preds, preds, 1.0, None, 10.0, 1, [0, 1])

    assert_nothing_is_kept(repeat, (preds, target, quick, quick.usual))


def test_a_broken_module_is_done_without(tmp_path: Path) -> None:
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no library")
    assert quick_calls._load(broken) is None


def test_without_the_module(device: str) -> None:
    prints_an_accuracy(
        "from syncfree._ops import quick_calls\nquick_calls.module_file = lambda: 'not there'",
        "not hasattr(torch.ops.syncfree.binary_accuracy.default._op, 'usual')",
        device,
    )
