"""Methods as a CUDA tensor has them: `device`, moves, and reads that make the host wait."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from syncfree.detector.tier0.recording import quiet, record
from syncfree.detector.tier0.replacing import Replacements
from syncfree.detector.tier0.residence import CUDA, Place, is_cpu, is_cuda, on_device, place_of, put
from syncfree.detector.tier0.transfers import move, record_upload
from syncfree.errors import VirtualDeviceError

_READ = "The host needs the value, so it waits for the GPU and copies it."
_WARNING_OF_GRADIENTS = ("Tensor.__float__", "Tensor.__complex__")
_OF_GRADIENT = (  # torch's own words
    "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.\n"
    "Consider using tensor.detach() first."
)
_said_of_gradient: list[bool] = []
_READS = (
    ("item", "Tensor.item"),
    ("tolist", "Tensor.tolist"),
    ("__bool__", "Tensor.__bool__"),
    ("__float__", "Tensor.__float__"),
    ("__int__", "Tensor.__int__"),
    ("__index__", "Tensor.__index__"),
    ("__complex__", "Tensor.__complex__"),
    ("__format__", "Tensor.__format__"),
    ("__repr__", "Tensor.__repr__"),
)


def install(replace: Replacements) -> None:
    """Replaces methods of `torch.Tensor`."""
    for name, api in _READS:
        replace.wrap(torch.Tensor, name, partial(_innermost, partial(_reading, api)))
    for name in ("new_tensor", "new_empty", "new_zeros", "new_ones", "new_full"):
        replace.wrap(torch.Tensor, name, partial(_innermost, _new_of))
    replace.wrap(torch.Tensor, "new", partial(_innermost, _legacy_new))
    for name, make in _METHODS.items():
        replace.wrap(torch.Tensor, name, partial(_innermost, make))
    for name, answer in _PROPERTIES.items():
        replace.wrap(torch.Tensor, name, partial(_property, answer))


def _innermost(
    make: Callable[[Callable[..., Any]], Callable[..., Any]], old: Callable[..., Any]
) -> Callable[..., Any]:
    """Lets function modes (such as a default device) and tensor subclasses handle a call first.

    They then call the method by its name, which is the replacement again, and only that call is
    judged.
    """
    new = make(old)

    @wraps(old)
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        first = torch._C._has_torch_function_unary(self) and not is_lazy(self)
        return (old if first else new)(self, *args, **kwargs)

    return method


def _property(answer: Any, old: Any) -> property:
    def get(self: Tensor) -> Any:
        return answer if on_device(self) else old.__get__(self)

    return property(get)


_PROPERTIES = {"device": CUDA, "is_cuda": True, "is_cpu": False}


def _reading(api: str, old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def read(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if api in _WARNING_OF_GRADIENTS and self.requires_grad:
            _warn_of_gradient()
            self = self.detach()
        if not on_device(self):
            return old(self, *args, **kwargs)
        record(api, _READ)
        with quiet():
            return old(self, *args, **kwargs)

    return read


def _warn_of_gradient() -> None:
    # torch's own warning is given only once, and would name the line of our wrapper.
    if torch.is_warn_always_enabled() or not _said_of_gradient:
        _said_of_gradient.append(True)
        warnings.warn(_OF_GRADIENT, UserWarning, stacklevel=4)


def _new_of(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def new(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        device = kwargs.get("device")
        to_device = is_cuda(device) or (device is None and on_device(self))
        if is_cuda(device):
            kwargs["device"] = "cpu"
        made: Tensor = old(self, *args, **kwargs)
        put(made, Place.DEVICE if to_device else None)
        if to_device and old.__name__ == "new_tensor":
            record_upload("Tensor.new_tensor", made)
        return made

    return new


def _legacy_new(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def new(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if is_cuda(kwargs.get("device")):
            kwargs["device"] = "cpu"
        made: Tensor = old(self, *args, **kwargs)
        if on_device(self):
            put(made, Place.DEVICE)
            if args and not isinstance(args[0], (int, torch.Size, Tensor)):  # data, not a size
                record_upload("Tensor.new", made)
        return made

    return new


def _to(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        given = dict(kwargs)
        rest = list(args)
        other = given.pop("other", None)
        if rest and isinstance(rest[0], Tensor):
            other = rest.pop(0)
        if other is not None:
            given |= {"device": other.device, "dtype": other.dtype}
        elif rest and isinstance(rest[0], torch.dtype):
            given["dtype"] = rest.pop(0)
        elif rest:
            given["device"] = rest.pop(0)
            if rest and (rest[0] is None or isinstance(rest[0], torch.dtype)):
                given["dtype"] = rest.pop(0)
        for name in ("non_blocking", "copy"):
            if rest:
                given[name] = rest.pop(0)
        device = given.get("device")
        up, down = is_cuda(device), is_cpu(device)
        if not up and not (down and on_device(self)):
            moved: Tensor = old(self, *args, **kwargs)
            return moved
        del given["device"]
        if up == on_device(self):
            moved = old(self, device="cpu", **given)
            return moved
        given.pop("copy", None)
        non_blocking = bool(given.pop("non_blocking", False))
        return move(self, to_device=up, api="Tensor.to", non_blocking=non_blocking, **given)

    return to


def _cuda(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def cuda(
        self: Tensor,
        device: Any = None,
        non_blocking: bool = False,
        memory_format: torch.memory_format = torch.preserve_format,
    ) -> Tensor:
        if device is not None and not is_cuda(device):
            raise RuntimeError(f"Invalid device, must be cuda device: got {device}")
        if on_device(self):
            return self
        return move(
            self,
            to_device=True,
            api="Tensor.cuda",
            non_blocking=non_blocking,
            memory_format=memory_format,
        )

    return cuda


def _cpu(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def cpu(self: Tensor, memory_format: torch.memory_format = torch.preserve_format) -> Tensor:
        if on_device(self):
            return move(self, to_device=False, api="Tensor.cpu", memory_format=memory_format)
        same: Tensor = old(self, memory_format=memory_format)
        return same

    return cpu


def _numpy(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def numpy(self: Tensor, *, force: bool = False) -> Any:
        if not on_device(self):
            return old(self, force=force)
        if not force:  # torch's own words
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the "
                "tensor to host memory first."
            )
        return move(self.detach(), to_device=False, api="Tensor.numpy").numpy(force=True)

    return numpy


def _type(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        if dtype is None:
            name: str = old(self)
            return name.replace("torch.", "torch.cuda.", 1) if on_device(self) else name
        if isinstance(dtype, torch.dtype):
            return old(self, dtype, non_blocking, **kwargs)
        name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
        wanted = old(torch.empty(0, device="cpu"), name.replace("torch.cuda.", "torch.")).dtype
        device = "cuda" if name.startswith("torch.cuda.") else "cpu"
        return self.to(device, wanted, non_blocking=non_blocking)

    return type_


def _type_as(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def type_as(self: Tensor, other: Tensor) -> Tensor:
        up = on_device(other)
        if up != on_device(self):
            return move(self, to_device=up, api="Tensor.type_as", dtype=other.dtype)
        same: Tensor = old(self, other)
        return same

    return type_as


def _get_device(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def get_device(self: Tensor) -> int:
        index: int = 0 if on_device(self) else old(self)
        return index

    return get_device


def _is_pinned(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def is_pinned(self: Tensor, device: Any = None) -> bool:
        return place_of(self) is Place.PINNED

    return is_pinned


def _pin_memory(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def pin_memory(self: Tensor, device: Any = None) -> Tensor:
        place = place_of(self)
        if place is Place.PINNED:
            return self
        if place is Place.DEVICE:  # torch's own words
            raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")
        pinned = self.clone()
        put(pinned, Place.PINNED)
        return pinned

    return pin_memory


def _deepcopy(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def deepcopy(self: Tensor, memo: Any) -> Any:
        with quiet():  # copies within the device, made of several steps on storages
            copy = old(self, memo)
        put(copy, place_of(self))
        return copy

    return deepcopy


def _record_stream(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def record_stream(self: Tensor, stream: Any) -> None:
        if not on_device(self):
            old(self, stream)

    return record_stream


def _share_memory(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def share_memory_(self: Tensor) -> Tensor:
        if on_device(self):  # CUDA memory always is shared
            return self
        shared: Tensor = old(self)
        return shared

    return share_memory_


def _dlpack(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def dlpack(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if on_device(self):
            raise VirtualDeviceError("Tensor.__dlpack__ of a CUDA tensor")
        return old(self, *args, **kwargs)

    return dlpack


_METHODS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "to": _to,
    "cuda": _cuda,
    "cpu": _cpu,
    "numpy": _numpy,
    "type": _type,
    "type_as": _type_as,
    "get_device": _get_device,
    "is_pinned": _is_pinned,
    "pin_memory": _pin_memory,
    "__deepcopy__": _deepcopy,
    "record_stream": _record_stream,
    "share_memory_": _share_memory,
    "__dlpack__": _dlpack,
}
