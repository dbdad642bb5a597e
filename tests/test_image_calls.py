"""Images and options straight to their op: the answers are those of the way through Python."""

from __future__ import annotations

import warnings
from itertools import product
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.overrides import BaseTorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from image_call_cases import WAYS, assert_same, images, options, states
from syncfree.functional import image_quality, peak_signal_noise_ratio
from test_quick_calls import Subclass


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
