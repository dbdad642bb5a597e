"""The ops behind SSIM losses whose gradients are computed together with their value.

`ssim_gives_gradients` says whether `ssim_with_gradients` has a kernel for its arguments. `scale`
multiplies such gradients in place by the incoming one, if `may_scale` allows it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from syncfree._ops.gradient import gradient_like
from syncfree._ops.registry import bind
from syncfree._ops.ssim import check_images


def _fake(
    preds: Tensor,
    target: Tensor,
    weight: float,
    need_preds: bool,
    need_target: bool,
    *options: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    check_images(preds, target)
    wide = torch.float64 if preds.dtype == torch.float64 else torch.float32
    loss = preds.new_empty((), dtype=wide)
    return loss, gradient_like(preds, need_preds), gradient_like(target, need_target)


def _fake_answer(preds: Tensor, target: Tensor, *options: Any) -> bool:
    check_images(preds, target)
    return False


def _fake_scale(first: Tensor, second: Tensor, factor: Tensor) -> None:
    pass


def _fake_may_scale(first: Tensor, second: Tensor, factor: Tensor) -> bool:
    return True


ssim_with_gradients = bind("ssim_with_gradients", _fake)
ssim_gives_gradients = bind("ssim_gives_gradients", _fake_answer)
scale = bind("scale_", _fake_scale)
may_scale = bind("may_scale", _fake_may_scale)
