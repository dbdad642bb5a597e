"""Storages on the virtual device, which `torch.save`, `torch.load` and copies of modules use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch

from syncfree.detector.findings import Verdict
from syncfree.detector.tier0.recording import quiet, record, thread
from syncfree.detector.tier0.replacing import Replacements
from syncfree.detector.tier0.residence import CUDA, Place, is_cuda, put_storage, storage_on_device
from syncfree.detector.tier0.transfers import DOWN, UP
from syncfree.errors import VirtualDeviceError


def install(replace: Replacements) -> None:
    """Replaces methods of `torch.UntypedStorage`, and `torch.save`."""
    for name, make in _METHODS.items():
        replace.wrap(torch.UntypedStorage, name, make)
    for name, answer in (("device", CUDA), ("is_cuda", True)):
        replace.wrap(torch.UntypedStorage, name, partial(_property, answer))
    replace.wrap(torch, "save", _save)


def _save(old: Callable[..., Any]) -> Callable[..., Any]:
    """Records one wait for all tensors: after the first copy, the GPU has nothing left to do."""

    @wraps(old)
    def save(*args: Any, **kwargs: Any) -> Any:
        before, thread.saved = thread.saved, False
        try:
            return old(*args, **kwargs)
        finally:
            thread.saved = before

    return save


def _property(answer: Any, old: Any) -> property:
    def get(self: Any) -> Any:
        return answer if storage_on_device(self) else old.__get__(self)

    return property(get)


def _copy(storage: Any, place: Place | None) -> Any:
    with quiet():
        copy = torch.UntypedStorage(storage.nbytes())
        put_storage(copy, place)
        copy.copy_(storage)
    return copy


def _download(storage: Any, api: str) -> Any:
    if thread.saved:
        return _copy(storage, None)
    if thread.saved is not None:
        thread.saved = True
    record(
        api,
        DOWN,
        direction="d2h",
        size=storage.nbytes(),
        host_memory="pageable",
    )
    return _copy(storage, None)


def _cpu(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def cpu(self: Any) -> Any:
        return _download(self, "UntypedStorage.cpu") if storage_on_device(self) else old(self)

    return cpu


def _to(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def to(self: Any, *, device: Any, non_blocking: bool = False) -> Any:
        here, there = storage_on_device(self), is_cuda(device)
        if here == there:
            return self if here else old(self, device=device, non_blocking=non_blocking)
        if here:
            return _download(self, "UntypedStorage.to")
        record(
            "UntypedStorage.to",
            UP,
            Verdict.CONDITIONAL,
            direction="h2d",
            size=self.nbytes(),
            host_memory="pageable",
            one_time=True,
        )
        return _copy(self, Place.DEVICE)

    return to


def _clone(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def clone(self: Any) -> Any:
        return _copy(self, Place.DEVICE) if storage_on_device(self) else old(self)

    return clone


def _write_file(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def write(self: Any, *args: Any) -> Any:
        return old(
            _download(self, "UntypedStorage.cpu") if storage_on_device(self) else self, *args
        )

    return write


def _share_cuda(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def share(self: Any, *args: Any) -> Any:
        raise VirtualDeviceError("sending a CUDA tensor to another process")

    return share


_METHODS = {
    "cpu": _cpu,
    "to": _to,
    "clone": _clone,
    "_write_file": _write_file,
    "_share_cuda_": _share_cuda,
}
