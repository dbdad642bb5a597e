"""Devices given as a bare number, which a torch for the CPU refuses, as it has no accelerator."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from syncfree.detector.tier0.replacing import Replacements
from syncfree.detector.tier0.residence import is_cuda

_TorchDevice = torch.device


def install(replace: Replacements) -> None:
    """Replaces `torch.device`, and the parser for the arguments of a module's `.to(...)`."""
    try:
        torch.device(0)
    except RuntimeError:
        replace.put(torch, "device", _Device)
        replace.wrap(torch.jit.annotations, "try_ann_to_type", _annotated)
    replace.wrap(torch._C._nn, "_parse_to", _parsing)


def _named(device: Any) -> Any:
    """The device with a number; any other argument is returned unchanged.

    Raises:
        VirtualDeviceError: The number is not that of the first device.
    """
    if isinstance(device, int) and not isinstance(device, bool) and is_cuda(device):
        return _TorchDevice("cuda", device)
    return device


class _DeviceType(type):
    """Behaves as torch's own type except for `is`."""

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.device:
        if len(args) == 1:
            args = (_named(args[0]),)
        return _TorchDevice(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _TorchDevice)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _TorchDevice)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is _TorchDevice

    def __hash__(cls) -> int:
        return hash(_TorchDevice)


_Device = _DeviceType("device", (), {"__module__": "torch", "__doc__": torch.device.__doc__})


def _annotated(old: Callable[..., Any]) -> Callable[..., Any]:
    """torch.jit compares with the current `torch.device`, and annotations may hold the old one."""

    @wraps(old)
    def try_ann_to_type(ann: Any, *args: Any, **kwargs: Any) -> Any:
        return old(_Device if ann is _TorchDevice else ann, *args, **kwargs)

    return try_ann_to_type


def _parsing(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def parse_to(*args: Any, **kwargs: Any) -> Any:
        if args:
            args = (_named(args[0]), *args[1:])
        elif "device" in kwargs:
            kwargs["device"] = _named(kwargs["device"])
        return old(*args, **kwargs)

    return parse_to
