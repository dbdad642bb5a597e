"""Calls of images that reach their op from C, beside those through Python: arguments of both."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

import syncfree.image.psnr as psnr_class
from syncfree.functional.image import _ms_ssim_call, _ssim_call
from syncfree.functional.image import psnr as psnr_function
from syncfree.functional.image import quality as quality_function
from test_quick_calls import outcome

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
