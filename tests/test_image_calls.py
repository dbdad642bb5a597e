"""Images and options straight to their op: the answers are those of the way through Python."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.overrides import BaseTorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import syncfree.image.psnr as psnr_class
from reference_counts import assert_nothing_is_kept
from syncfree._ops import psnr, quick_calls
from syncfree.functional import image_quality, peak_signal_noise_ratio
from syncfree.functional.image import _ms_ssim_call, _ssim_call
from syncfree.functional.image import psnr as psnr_function
from syncfree.functional.image import quality as quality_function
from test_quick_calls import Subclass, outcome

Way = Callable[..., Any]
_GAUSSIAN = True, 1.5, 11, "elementwise_mean", 0.01, 0.03
_SCALES = (0.5, 0.5), "relu"


def ways() -> dict[str, tuple[Way, Way]]:
    """The quick way and the usual one of everything that has both."""
    found = {
        "psnr": (psnr_function._psnr, psnr_function._psnr_of_any),
        "psnr_update": (psnr_class._update, psnr_class._update_of_any),
        "quality": (quality_function._quality, quality_function._quality_of_any),
        "ms_ssim": (_ms_ssim_call._value, _ms_ssim_call._value_of_any),
        "ms_ssim_update": (_ms_ssim_call._update, _ms_ssim_call._update_of_any),
    }
    found |= {f"ssim {extra}": both for extra, both in _ssim_call._VALUES.items()}
    return found | {f"ssim_update {extra}": both for extra, both in _ssim_call._UPDATES.items()}


WAYS = ways()


def images(dtype: torch.dtype = torch.float32, device: str = "cpu") -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    pair = torch.rand(2, 2, 3, 24, 24, generator=generator) * (
        1 if dtype.is_floating_point else 255
    )
    preds, target = pair.to(dtype).to(device)
    return preds, target


def states(name: str, device: str) -> list[Any]:
    if "update" not in name:
        return []
    if name == "psnr_update":
        dtypes = torch.float32, torch.int64, torch.float32
        return [torch.ones((), dtype=dtype, device=device) for dtype in dtypes]
    return [torch.zeros((), dtype=torch.float64, device=device), torch.zeros((), device=device)]


def options(name: str) -> list[tuple[Any, ...]]:
    if name == "psnr":
        return [
            (1.0, 10.0, "elementwise_mean", None, "torchmetrics"),
            (1, 10.0, "elementwise_mean", None, "torchmetrics"),
            (255.0, 10.0, "elementwise_mean", None, "torchmetrics"),
            ((0.0, 1.0), 2.0, "sum", (1, 2, 3), "torchmetrics"),
            ((0, 1), 2, "none", [0], "torchmetrics"),
            ((0.0, 0.5), 10.0, None, 0, "torchmetrics"),
            (torch.tensor(1.0), np.float64(10), "sum", (), "torchmetrics"),
            (1.0, 10.0, "elementwise_mean", None, "skimage"),
            (None, 10.0, "elementwise_mean", None, "skimage"),
            (None, 10.0, "elementwise_mean", None, "torchmetrics"),
            (-1.0, 10.0, "elementwise_mean", None, "torchmetrics"),
            (1.0, 1.0, "elementwise_mean", None, "torchmetrics"),
            (1.0, 10.0, "mean", None, "torchmetrics"),
            (1.0, 10.0, "none", 7, "torchmetrics"),
            (1.0, 10.0, "none", (1, 1), "torchmetrics"),
            (1.0, 10.0, "none", 1.0, "torchmetrics"),
        ]
    if name == "psnr_update":
        return [(1.0, None, 10.0), (255.0, (0.0, 255.0), 2.0), (1.0, (0.0, 1.0), 2), (1.0, None)]
    if name == "quality":
        return [
            (1.0, *_GAUSSIAN[:3], "elementwise_mean", 0.01, 0.03),
            ((0.25, 0.75), *_GAUSSIAN[:3], "none", 0.01, 0.03),
            (255.0, False, 1.5, 7, None, 0.02, 0.05),
            (None, *_GAUSSIAN[:3], "elementwise_mean", 0.01, 0.03),
            (1.0, True, (1.5, 1.0), [11, 9], "none", 0.01, 0.03),
        ]
    of_ssim = [
        (1.0, *_GAUSSIAN, "torchmetrics"),
        (None, *_GAUSSIAN, "torchmetrics"),
        (255, *_GAUSSIAN, "torchmetrics"),
        ((0.25, 0.75), True, 1.0, 9, "none", 0.02, 0.05, "torchmetrics"),
        (1.0, False, 1.5, 7, "sum", 0.01, 0.03, "torchmetrics"),
        (1.0, 0, 1.5, 7, None, 0.01, 0.03, "torchmetrics"),
        (1.0, True, (1.5, 1.0), [11, 9], "none", 0.01, 0.03, "torchmetrics"),
        (1.0, True, 1, np.int64(11), "none", 0.01, 0.03, "torchmetrics"),
        (1.0, True, 1.5, 8, "none", 0.01, 0.03, "torchmetrics"),
        (1.0, True, -1.5, 7, "none", 0.01, 0.03, "torchmetrics"),
        (1.0, False, 1.5, 51, "none", 0.01, 0.03, "torchmetrics"),
        (1.0, 1.0, 1.5, 11, "none", 0.01, 0.03, "torchmetrics"),
        (1.0, *_GAUSSIAN[:3], "mean", 0.01, 0.03, "torchmetrics"),
        (1.0, *_GAUSSIAN[:4], "0.01", 0.03, "torchmetrics"),
        ("1", *_GAUSSIAN, "torchmetrics"),
        (1.0, *_GAUSSIAN, "wang"),
        (1.0, *_GAUSSIAN, "other"),
    ]
    if not name.startswith("ms_ssim"):
        return of_ssim
    scales = [
        ((0.5, 0.5), None),
        ((0.5, 0.5), "other"),
        ((0.5, 1), "relu"),
        ([0.5, 0.5], "relu"),
        ((0.1,) * 5, "relu"),  # of images that are too small
    ]
    first, *_ = of_ssim
    without_presets = [each for each in of_ssim if each[-1] == "torchmetrics"]
    return [*((*each, *_SCALES) for each in without_presets), *((*first, *each) for each in scales)]


def with_states(way: Way, name: str, pair: tuple[Any, Any], given: tuple[Any, ...]) -> str:
    """The result beside the states as they are then."""
    kept = states(name, pair[0].device.type if isinstance(pair[0], Tensor) else "cpu")
    result = outcome(lambda: way(*pair, *kept, *given))
    return repr((result, [outcome(each.clone) for each in kept]))  # in which NaN is NaN


def assert_same(name: str, pair: tuple[Any, Any], given: tuple[Any, ...]) -> None:
    quick, usual = WAYS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of bytes
        expected = with_states(usual, name, pair, given)
        for _ in range(3):
            assert with_states(quick, name, pair, given) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8], ids=str)
@pytest.mark.parametrize(
    ("name", "given"), [(name, each) for name in WAYS for each in options(name)], ids=str
)
def test_same_answers(name: str, given: tuple[Any, ...], dtype: torch.dtype, device: str) -> None:
    assert_same(name, images(dtype, device), given)


_DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.uint8,
    torch.int32,
    torch.bool,
    torch.complex64,
)


@pytest.mark.parametrize("name", WAYS)
def test_same_answers_for_any_types(name: str, device: str) -> None:
    given = options(name)[0]
    for one, other in product(_DTYPES, _DTYPES):
        assert_same(name, (images(one, device)[0], images(other, device)[1]), given)


def unusual_images() -> dict[str, tuple[Any, Any]]:
    preds, target = images()
    return {
        "None": (preds, None),
        "a list": ([1.0], target),
        "a subclass": (preds.as_subclass(Subclass), target),
        "a parameter": (torch.nn.Parameter(preds), target),
        "a gradient": (preds.clone().requires_grad_(), target),
        "a target's gradient": (preds, target.clone().requires_grad_()),
        "other shapes": (preds, target[:1]),
        "too few dimensions": (preds[0], target[0]),
        "no images": (preds[:0], target[:0]),
        "sparse": (preds.to_sparse(), target),
        "strides": (preds.transpose(2, 3), target.flip(2)),
    }


@pytest.mark.parametrize("kind", unusual_images())
@pytest.mark.parametrize("name", WAYS)
def test_same_answers_for_any_images(name: str, kind: str) -> None:
    assert_same(name, unusual_images()[kind], options(name)[0])


@pytest.mark.parametrize("name", WAYS)
def test_same_answers_under_modes(name: str) -> None:
    quick, usual = WAYS[name]
    preds, target = images()
    given = options(name)[0]
    wanting = preds.clone().requires_grad_()
    with torch.no_grad():
        assert_same(name, (wanting, target), given)
    with torch.inference_mode():
        assert_same(name, images(), given)
    with BaseTorchFunctionMode():
        assert_same(name, (preds, target), given)
    with FakeTensorMode() as mode:
        fakes = mode.from_tensor(preds), mode.from_tensor(target)
        kept = [mode.from_tensor(each) for each in states(name, "cpu")]
        one, other = (way(*fakes, *kept, *given) for way in (quick, usual))
    for a, b in zip(
        one if isinstance(one, tuple) else (one,),
        other if isinstance(other, tuple) else (other,),
        strict=True,
    ):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)


@pytest.mark.parametrize("name", WAYS)
def test_no_derivative_in_forward_mode(name: str) -> None:
    quick, _ = WAYS[name]
    preds, target = images()
    kept, given = states(name, "cpu"), options(name)[0]
    quick(preds, target, *kept, *given)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(preds, torch.ones_like(preds))
        with pytest.raises(NotImplementedError, match="forward mode"):
            quick(dual, target, *kept, *given)
        quick(preds, target, *kept, *given)


def test_gradients_are_recorded() -> None:
    preds, target = images()
    preds.requires_grad_()
    assert peak_signal_noise_ratio(preds, target, data_range=1.0).grad_fn is not None
    assert image_quality(preds, target, data_range=1.0).ssim.grad_fn is not None
    with torch.no_grad():
        assert peak_signal_noise_ratio(preds, target, data_range=1.0).grad_fn is None


def test_bytes_are_warned_of_where_the_range_is_one_of_floats() -> None:
    pair = images(torch.uint8)
    peak_signal_noise_ratio(*pair, data_range=255.0)
    for _ in range(2):
        with pytest.warns(UserWarning, match="`preds` is uint8"):
            peak_signal_noise_ratio(*pair, data_range=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        peak_signal_noise_ratio(*pair, data_range=255.0)
        peak_signal_noise_ratio(*images(), data_range=1.0)


@pytest.mark.parametrize("name", WAYS)
def test_of_two_mistakes_the_same_one_is_told(name: str) -> None:
    preds, target = images()
    for pair in ((preds[0], target[0]), (preds, target[:1]), (preds, None)):
        for given in options(name):
            assert_same(name, pair, given)


def test_nested_images() -> None:
    nested = torch.nested.nested_tensor([torch.zeros(3, 24, 24), torch.zeros(3, 12, 12)])
    for name in WAYS:
        assert_same(name, (nested, nested), options(name)[0])


class Refusing(TorchDispatchMode):
    """Raises once an op of ours has run."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        result = function(*args, **(kwargs or {}))
        if "syncfree" in str(function):
            raise ValueError("seen")
        return result


@pytest.mark.parametrize("name", [name for name in WAYS if "update" in name])
def test_an_error_behind_the_op_adds_nothing_again(name: str) -> None:
    quick, _ = WAYS[name]
    pair, given = images(), options(name)[0]
    once, twice = states(name, "cpu"), states(name, "cpu")
    quick(*pair, *once, *given)
    with Refusing(), pytest.raises(ValueError, match="seen"):
        quick(*pair, *twice, *given)
    assert all(map(torch.equal, once, twice))


def test_ops_without_a_gradient_are_quick_for_images_that_have_one() -> None:
    preds, target = images()
    preds.requires_grad_()
    checks = Checks()
    assert checks.call(preds, target, 1.0, None) == "usual"
    assert not checks.asked
    checks = Checks(has_gradient=False)
    checks.call(preds, target, 1.0, None)
    assert checks.asked == [(False, 1.0, None)]


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
