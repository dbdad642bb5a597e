"""Copies between host and device: which of them the host waits for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from inspect import unwrap
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from syncfree.detector import set_up
from syncfree.detector.findings import Frame, Verdict
from syncfree.detector.stack import MACHINERY, is_inside, stack_here
from syncfree.detector.tier0.recording import quiet, record
from syncfree.detector.tier0.residence import Place, on_device, place_of, put, size_of

_to = torch.Tensor.to

# Functions that move or load weights. `_apply` is listed because classes with other state than
# parameters, such as metrics, override it.
_MOVES_OF_WEIGHTS = tuple(
    unwrap(method).__code__
    for method in (
        torch.nn.Module.cuda,
        torch.nn.Module.to,
        torch.nn.Module._apply,
        torch.nn.Module.load_state_dict,
        torch.optim.Optimizer.load_state_dict,
    )
)

DOWN = "A copy to the host returns when the GPU has finished everything queued before it."
_DOWN_PAGEABLE = (
    "`non_blocking` has no effect on a copy to pageable memory, or to pinned memory with gaps: "
    "the host waits for the GPU."
)
UP = "A blocking copy to the GPU returns when what was queued before it is done too."
_UP_PAGEABLE = "From pageable memory a large copy waits even with `non_blocking`."


def move(
    tensor: Tensor, *, to_device: bool, api: str, non_blocking: bool = False, **options: Any
) -> Tensor:
    """A copy to the other side, as `Tensor.to` makes it; its gradient is copied back."""
    if torch.is_grad_enabled() and tensor.requires_grad:
        crossed: Tensor = _Crossing.apply(  # type: ignore[no-untyped-call]
            tensor, to_device, api, non_blocking, options
        )
        return crossed
    return _copied(tensor, to_device, api, non_blocking, options)


def _copied(
    tensor: Tensor,
    to_device: bool,
    api: str,
    non_blocking: bool,
    options: dict[str, Any],
    forward: Frame | None = None,
) -> Tensor:
    pinned = place_of(tensor) is Place.PINNED
    if to_device:
        record_upload(api, tensor, pinned=pinned, non_blocking=non_blocking, forward=forward)
    else:
        # torch allocates pinned memory for the result of a non-blocking copy.
        record_download(
            api, tensor, pinned=non_blocking, non_blocking=non_blocking, forward=forward
        )
    with quiet(), _as_plain(tensor):
        copy: Tensor = _to(tensor, device="cpu", copy=True, **options)
    put(copy, Place.DEVICE if to_device else Place.PINNED if non_blocking else None)
    return copy


def _as_plain(tensor: Tensor) -> AbstractContextManager[None]:
    """Lazy parameters allow only certain methods; in this context they take any."""
    if not is_lazy(tensor):
        return nullcontext()
    plain: AbstractContextManager[None] = torch._C.DisableTorchFunctionSubclass()
    return plain


class _Crossing(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: Tensor, to_device: bool, api: str, non_blocking: bool, options: Any
    ) -> Tensor:
        ctx.to_device, ctx.dtype, ctx.line = to_device, tensor.dtype, stack_here()[0]
        return _copied(tensor, to_device, api, non_blocking, options)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        options = {"dtype": ctx.dtype}
        back = not ctx.to_device
        if torch.is_grad_enabled() and gradient.requires_grad:  # create_graph=True
            gradient = move(gradient, to_device=back, api="backward of a copy", **options)
        else:
            line = ctx.line
            gradient = _copied(gradient, back, "backward of a copy", False, options, line)
        return gradient, None, None, None, None


def record_download(
    api: str,
    source: Tensor,
    *,
    pinned: bool = False,
    non_blocking: bool = False,
    op: str | None = None,
    forward: Frame | None = None,
) -> None:
    """Records a copy to the host, unless it is a non-blocking one to pinned memory."""
    size = size_of(source)
    if (pinned and non_blocking) or not size:
        return
    record(
        api,
        _DOWN_PAGEABLE if non_blocking else DOWN,
        direction="d2h",
        size=size,
        host_memory="pinned" if pinned else "pageable",
        op=op,
        forward=forward,
    )


def record_upload(
    api: str,
    source: Tensor,
    *,
    pinned: bool = False,
    non_blocking: bool = False,
    op: str | None = None,
    forward: Frame | None = None,
) -> None:
    """Records a copy to the device. After a blocking copy torch waits for the stream.

    Two kinds are conditional: the first copy at each place, because weights and data have to get to
    the GPU once, and non-blocking copies from pageable memory, which wait if they are large.
    """
    size = size_of(source)
    if (pinned and non_blocking) or not size:
        return
    once = not non_blocking and _is_set_up()
    record(
        api,
        _UP_PAGEABLE if non_blocking else UP,
        Verdict.CONDITIONAL if non_blocking or once else Verdict.SYNC,
        direction="h2d",
        size=size,
        host_memory="pinned" if pinned else "pageable",
        op=op,
        forward=forward,
        one_time=once,
    )


def _is_set_up() -> bool:
    """Whether weights are being moved or loaded, or the program makes this call the first time."""
    call: FrameType | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code in _MOVES_OF_WEIGHTS:
            return True
        if call is None and not is_inside(frame.f_code.co_filename, MACHINERY):
            call = frame
        frame = frame.f_back
    return call is not None and set_up.is_first(call)


def judge_copy(args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Records an `aten::copy_` with a marked tensor, if it is a copy between host and device."""
    target, source = args[0], args[1]
    non_blocking = bool(args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
    there, here = place_of(target), place_of(source)
    if there is here is Place.DEVICE:
        return
    if here is Place.DEVICE:
        if there is Place.OPEN:
            return
        # A target with gaps is written through a pageable buffer (torch's copy kernel).
        same = target.dtype == source.dtype and target.stride() == source.stride()
        dense = target.is_contiguous() or (same and _without_gaps(target))
        pinned = there is Place.PINNED and dense
        record_download(
            "Tensor.copy_", source, pinned=pinned, non_blocking=non_blocking, op="aten::copy_"
        )
    elif here is not Place.OPEN:
        pinned = here is Place.PINNED and source.is_contiguous()
        record_upload(
            "Tensor.copy_", source, pinned=pinned, non_blocking=non_blocking, op="aten::copy_"
        )


def _without_gaps(tensor: Tensor) -> bool:
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return sum((size - 1) * stride for size, stride in steps) + 1 == tensor.numel()


def judge_indices(args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Records the upload of indices on the host for a tensor on the device."""
    indices = args[1] if len(args) > 1 else kwargs.get("indices", ())
    if not on_device(args[0]):
        return
    for index in indices:
        if isinstance(index, Tensor) and place_of(index) in (None, Place.PINNED):
            record_upload("aten::index", index, op="aten::index")
