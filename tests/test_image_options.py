"""Options of images that are checked once, by the callable that does so."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from image_call_cases import WAYS, images
from reference_counts import assert_nothing_is_kept
from syncfree._ops import psnr, quick_calls


class Checks:
    """Counts how often options are checked."""

    def __init__(self, has_gradient: bool = True) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.call = quick_calls.checking_images(
            psnr.psnr, self.check, self.usual, has_gradient=has_gradient
        )

    def check(self, of_bytes: bool, *options: Any) -> Any:
        self.asked.append((of_bytes, *options))
        value_range, dim = options
        return None if value_range is None else (1.0, None, 10.0, 1, dim)

    def usual(self, *_: Any, **__: Any) -> str:
        return "usual"


def test_ops_without_a_gradient_are_quick_for_images_that_have_one() -> None:
    preds, target = images()
    preds.requires_grad_()
    checks = Checks()
    assert checks.call(preds, target, 1.0, None) == "usual"
    assert not checks.asked
    checks = Checks(has_gradient=False)
    checks.call(preds, target, 1.0, None)
    assert checks.asked == [(False, 1.0, None)]


def test_constants_are_checked_once() -> None:
    checks = Checks()
    for dims in ((1, 2), (1, 2), (int("1"), int("2"))):
        for _ in range(3):
            checks.call(*images(), (0.0, 1.0), (*dims,))
    assert checks.asked == [(False, (0.0, 1.0), (1, 2))]
    for given in ((0, 1), (0.0, 1.0, 2.0), (0.0,), ((0.0, 1.0),), (0.0, True)):
        for _ in range(2):
            checks.call(*images(), given, (1, 2))
    assert len(checks.asked) == 6


def test_bytes_are_another_set_of_options() -> None:
    checks = Checks()
    for _ in range(2):
        checks.call(*images(), 255.0, None)
        checks.call(*images(torch.uint8), 255.0, None)
    assert [of_bytes for of_bytes, *_ in checks.asked] == [False, True]


def test_what_may_change_is_checked_each_time() -> None:
    checks = Checks()
    changing = [1]
    for given in ((1.0, changing), (1.0, (1, changing)), (np.float32(1), 1)):
        asked = len(checks.asked)
        for _ in range(2):
            checks.call(*images(), *given)
        assert len(checks.asked) == asked + 2


def test_where_images_have_to_be_looked_at() -> None:
    checks = Checks()
    for _ in range(3):
        assert checks.call(*images(), None, None) == "usual"
    assert len(checks.asked) == 1  # that answer is kept, too
    for _ in range(2):
        assert checks.call(*images(), None, [1]) == "usual"
    assert len(checks.asked) == 3
    assert checks.call(*images(torch.int32), 1.0, None) == "usual"
    assert checks.call(images()[0], images(torch.uint8)[1], 1.0, None) == "usual"
    assert checks.call(*images(), 1.0, dim=None) == "usual"
    assert checks.call(images()[0]) == "usual"
    assert checks.call() == "usual"
    assert len(checks.asked) == 3
    assert checks.call(*images(), 1.0) == "usual"  # which `check` does not take


def test_what_the_operator_refuses() -> None:
    checks = Checks()
    preds, target = images()
    with pytest.raises(IndexError, match="7"):
        checks.call(preds, target, 1.0, [7])
    with pytest.raises(RuntimeError, match="same shape"):
        checks.call(preds, target[:1], 1.0, None)


def test_an_interrupted_check() -> None:
    def check(*_: Any) -> Any:
        raise KeyboardInterrupt

    call = quick_calls.checking_images(psnr.psnr, check, lambda *_: pytest.fail("went on"))
    with pytest.raises(KeyboardInterrupt):
        call(*images(), 1.0, None)


def test_threads() -> None:
    quick, usual = WAYS["psnr"]
    pair = images()
    given = [(float(i), 10.0, "sum", (1, i % 4), "torchmetrics") for i in (2, 3, 4, 6, 7, 8)] * 4
    given += [((0.0, 1.0 / i), 10.0, "sum", None, "torchmetrics") for i in range(1, 12)] * 4
    expected = [usual(*pair, *each).item() for each in given]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(10):
            assert list(pool.map(lambda each: quick(*pair, *each).item(), given)) == expected


def test_nothing_is_kept() -> None:
    preds, target = images()
    quick, _ = WAYS["psnr"]
    dims, others = (1, 2), [1, 2]

    def repeat() -> None:
        for _ in range(100):
            quick(preds, target, 1.0, 10.0, "sum", dims, "torchmetrics")
            quick(preds, target, 1.0, 10.0, "sum", others, "torchmetrics")
            with pytest.raises(RuntimeError):
                quick(preds, target[:1], 1.0, 10.0, "sum", dims, "torchmetrics")
            with pytest.raises(ValueError, match="reduction"):
                quick(preds, target, 1.0, 10.0, "mean", dims, "torchmetrics")

    assert_nothing_is_kept(repeat, (preds, target, dims, others, quick, quick.usual))


def test_the_quick_way_is_taken() -> None:
    """Otherwise all tests here would compare Python with itself."""
    for quick, usual in WAYS.values():
        assert type(quick).__name__ == "Callable"
        assert quick.usual is usual
