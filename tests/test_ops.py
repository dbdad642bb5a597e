"""Every op that the libraries register keeps what torch asks of a custom op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import syncfree.functional
import syncfree.losses  # noqa: F401  (both bind all ops)
from syncfree._ops import accuracy as accuracy_ops

# What reads and clears records on the host takes no tensor.
WITHOUT_TENSORS = {"has_error_record", "take_error_record"}
NAMES = sorted(
    name.removeprefix("syncfree::")
    for name in torch._C._dispatch_get_all_op_names()
    if name.startswith("syncfree::")
)

Make = Callable[[str], tuple[Any, ...]]
WINDOW = (True, [1.5], [11], 1.0, None, 0.01, 0.03)
SCALES = (*WINDOW, [0.4, 0.6], 1)
MEAN = 1


def images(device: str) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    preds, target = torch.rand(2, 2, 3, 24, 27).to(device)
    return preds, target


def zeros(count: int, size: int, device: str) -> list[Tensor]:
    return [torch.zeros(size, dtype=torch.int64, device=device) for _ in range(count)]


def scalars(device: str) -> tuple[Tensor, Tensor]:
    return torch.zeros((), device=device), torch.zeros((), device=device)


def pixels_in_all(device: str) -> tuple[Tensor, Tensor]:
    return torch.zeros((), device=device), torch.zeros((), dtype=torch.int64, device=device)


def with_scales_of(device: str) -> tuple[Any, ...]:
    pair = images(device)
    value, *scales = torch.ops.syncfree.multiscale_ssim_with_scales(*pair, *SCALES, MEAN)
    return *pair, *scales, torch.ones_like(value), True, True, *SCALES, MEAN


def ssim_gradients(device: str) -> tuple[Any, ...]:
    each = torch.rand(2, device=device)
    given = torch.rand((), device=device), each, torch.rand(2, 3, 24, 27, device=device)
    return *images(device), *given, each, each, True, True, *WINDOW, MEAN


TABLE: dict[str, Make] = {
    "image_quality": lambda d: (*images(d), *WINDOW, MEAN),
    "may_scale": lambda d: (*images(d), torch.full((), 0.5, device=d)),
    "multiscale_ssim": lambda d: (*images(d), *SCALES, MEAN),
    "multiscale_ssim_backward": with_scales_of,
    "multiscale_ssim_update": lambda d: (*images(d), *scalars(d), *SCALES, MEAN),
    "multiscale_ssim_with_scales": lambda d: (*images(d), *SCALES, MEAN),
    "psnr": lambda d: (*images(d), 1.0, None, 10.0, MEAN, None),
    "psnr_backward": lambda d: (
        *(*images(d), torch.ones((), device=d), True, True),
        *(1.0, None, 10.0, MEAN, None),
    ),
    "psnr_from_errors": lambda d: (
        *(torch.rand(5, device=d), torch.full((5,), 9, device=d)),
        *(torch.ones((), device=d), 10.0, MEAN),
    ),
    "psnr_update": lambda d: (
        *(*images(d), *pixels_in_all(d)),
        *(torch.ones((), device=d), [0.1, 0.8], 10.0),
    ),
    "psnr_with_squared_error": lambda d: (
        *(*images(d), torch.ones((), device=d)),
        *(None, 10.0, MEAN, [1, 2, 3]),
    ),
    "safe_divide": lambda d: (*images(d), 0.0),
    "scale_": lambda d: (*images(d), torch.full((), 0.5, device=d)),
    "ssim": lambda d: (*images(d), *WINDOW, MEAN),
    "ssim_backward": ssim_gradients,
    "ssim_gives_gradients": lambda d: (*images(d), *WINDOW, MEAN),
    "ssim_update": lambda d: (*images(d), *scalars(d), *WINDOW, MEAN),
    "ssim_update_with_contrast": lambda d: (*images(d), *scalars(d), *WINDOW, MEAN),
    "ssim_update_with_map": lambda d: (*images(d), *scalars(d), *WINDOW, MEAN),
    "ssim_with_contrast": lambda d: (*images(d), *WINDOW, MEAN),
    "ssim_with_gradients": lambda d: (*images(d), 0.2, True, True, *WINDOW, MEAN),
    "ssim_with_map": lambda d: (*images(d), *WINDOW, MEAN),
}

CLASSES = 4
OWN = {"binary": (0.5,), "multiclass": (CLASSES, 1), "multilabel": (CLASSES, 0.5)}


def accuracy_arguments(name: str, device: str) -> tuple[Any, ...]:
    task, _, kind = name.partition("_accuracy")
    samplewise = kind == "_counts"
    options, ignored = accuracy_ops.pack_options("macro", samplewise, 1, True)
    if name == "accuracy_from_counts":
        bits = accuracy_ops.task_bits("multiclass")
        return *zeros(4, CLASSES, device), zeros(1, 1, device)[0], options | bits
    torch.manual_seed(0)
    preds = torch.rand(5, CLASSES, 3).to(device)
    if task == "multiclass":
        target = torch.randint(CLASSES, (5, 3)).to(device)
    else:
        target = torch.randint(2, preds.shape).to(device)
    bad = zeros(1, 1, device)
    states: list[Tensor] = []
    if kind in ("_update", "_forward"):
        states = [*zeros(4, 1 if task == "binary" else CLASSES, device), *bad]
    elif samplewise:
        states = bad
    own: tuple[Any, ...] = (CLASSES, [1, 3]) if kind == "_top_k" else OWN[task]
    return preds, target, *states, *own, options, ignored


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITHOUT_TENSORS])
def test_op_keeps_its_promises(name: str, device: str) -> None:
    """Its schema, its fake, its autograd registration, and tracing it with fixed and free sizes."""
    arguments = TABLE[name](device) if name in TABLE else accuracy_arguments(name, device)
    op = getattr(torch.ops.syncfree, name).default
    result = torch.library.opcheck(op, arguments)
    assert len(result) == 4
    assert set(result.values()) == {"SUCCESS"}


def test_the_table_is_of_this_library() -> None:
    assert set(TABLE) < set(NAMES)
