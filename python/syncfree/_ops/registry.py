"""Loads the libraries and binds their ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from syncfree import _libraries
from syncfree._ops.quick_calls import quicken
from syncfree._ops.quick_results import quicken_results
from syncfree.errors import DeviceError

_libraries.load()
quicken_results()

_library = torch.library.Library("syncfree", "IMPL")

_DEVICES_WITHOUT_KERNELS = ("MPS", "XPU", "HPU", "XLA", "PrivateUse1")
_LAYOUTS_WITHOUT_KERNELS = (
    *(
        f"{layout}{device}"
        for layout in ("Sparse", "SparseCsr", "Quantized", "NestedTensor")
        for device in ("CPU", "CUDA")
    ),
    "MkldnnCPU",
    "AutogradNestedTensor",
)

# As in csrc/core/reduction.h.
REDUCTIONS: dict[str | None, int] = {"none": 0, None: 0, "elementwise_mean": 1, "sum": 2}


def reduction_code(reduction: str | None) -> int:
    """The number by which the kernels know a reduction."""
    try:
        return REDUCTIONS[reduction]
    except (KeyError, TypeError):
        raise ValueError(
            f"Expected argument `reduction` to be one of {tuple(REDUCTIONS)}, "
            f"but got {reduction!r}."
        ) from None


def bind(
    name: str, fake: Callable[..., Any], *, ignores_gradient: bool = False
) -> Callable[..., Any]:
    """The overload of op ``name``: its call saves the microsecond of a look-up in ``torch.ops``.

    ``fake`` gives the results' shapes, dtypes and devices for torch.compile and the meta device.
    Devices and layouts that have no kernel raise a typed error instead of torch's list of dispatch
    keys. With ``ignores_gradient`` the result has no gradient, even if inputs require one.
    """

    def refuse(*args: object) -> Tensor:
        tensors = [a for a in args if isinstance(a, Tensor)]
        for argument, tensor in zip(overload._schema.arguments, args, strict=False):  # type: ignore[attr-defined]
            if isinstance(tensor, Tensor):
                _require_dense(argument.name, tensor)
        tensor = next((t for t in tensors if t.device.type not in ("cpu", "cuda")), tensors[0])
        raise DeviceError(
            f"syncfree has kernels for CPU and CUDA tensors, but got a tensor on {tensor.device}. "
            "Move it to one of them with `.to(device)`."
        )

    def checked(a: Tensor, b: Tensor, *rest: Any) -> Any:
        if a.device != b.device:
            raise RuntimeError(
                f"Expected both tensors on the same device, but got {a.device} and {b.device}. "
                "Move them together with `.to(device)`."
            )
        result = fake(a, b, *rest)
        # One state on the meta device is enough for the call to be dispatched here.
        other = next((t for t in rest if isinstance(t, Tensor) and t.device != a.device), None)
        if other is not None:
            raise RuntimeError(
                f"Expected all tensors on the same device, but got {a.device} and {other.device}. "
                "Move them together with `.to(device)`."
            )
        return result

    # A second import of the package replaces registrations, which torch 2.11 refuses by default.
    torch.library.register_fake(f"syncfree::{name}", checked, allow_override=True)
    for key in (*_DEVICES_WITHOUT_KERNELS, *_LAYOUTS_WITHOUT_KERNELS):
        _library.impl(name, refuse, key, allow_override=True)
    if ignores_gradient:
        _library.impl(name, torch.library.fallthrough_kernel, "Autograd", allow_override=True)
    overload: Callable[..., Any] = getattr(torch.ops.syncfree, name).default
    quicken(overload)
    return overload


def _require_dense(name: str, tensor: Tensor) -> None:
    """Raises TypeError for a tensor that is not strided: kernels read elements by strides."""
    if tensor.is_nested:
        what, advice = "a nested tensor", f"Take its parts one by one, from `{name}.unbind()`"
    elif tensor.is_quantized:
        what, advice = "a quantized one", "Convert it with `.dequantize()`"
    elif tensor.layout is not torch.strided:
        what, advice = f"one of layout {tensor.layout}", "Convert it with `.to_dense()`"
    else:
        return
    raise TypeError(f"Expected `{name}` to be a dense tensor, but got {what}. {advice}.")
