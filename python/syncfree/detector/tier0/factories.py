"""Functions that make tensors on a device, and the few that behave differently on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.utils._device import DeviceContext, _device_constructors

from syncfree.detector.tier0.recording import in_factory, quiet, record
from syncfree.detector.tier0.replacing import Replacements
from syncfree.detector.tier0.residence import CUDA, Place, is_cpu, is_cuda, on_device, put
from syncfree.detector.tier0.transfers import move, record_download, record_upload
from syncfree.errors import VirtualDeviceError

_LIKE = (
    "empty_like",
    "full_like",
    "ones_like",
    "rand_like",
    "randint_like",
    "randn_like",
    "zeros_like",
)
# The position of the size among the arguments; without a size the host reads the largest index.
_SPARSE = {
    "sparse_coo_tensor": 2,
    "sparse_compressed_tensor": 3,
    "sparse_csr_tensor": 3,
    "sparse_csc_tensor": 3,
    "sparse_bsr_tensor": 3,
    "sparse_bsc_tensor": 3,
}
_FROM_DATA = ("tensor", "as_tensor", "asarray")


def install(replace: Replacements) -> None:
    """Replaces functions of `torch` that take a device."""
    # This call also fills torch's cached set of factories for default devices, which must hold
    # torch's functions and not their replacements.
    for function in _device_constructors():
        name = function.__name__
        if name not in _FROM_DATA and getattr(torch, name, None) is function:
            replace.wrap(torch, name, _sparse if name in _SPARSE else _factory)
    for owner, name in ((torch, "normal"), (torch.fft, "fftfreq"), (torch.fft, "rfftfreq")):
        replace.wrap(owner, name, _factory)
    for name in _FROM_DATA:
        replace.wrap(torch, name, _from_data)
    for name in _LIKE:
        replace.wrap(torch, name, _like)
    replace.wrap(torch.nn.functional, "one_hot", _one_hot)
    for name in ("quantile", "nanquantile"):
        replace.wrap(torch, name, _checked_on_host_only)
        replace.wrap(torch.Tensor, name, _checked_on_host_only)
    replace.wrap(torch, "ctc_loss", _ctc_loss)
    replace.wrap(torch.nn.functional, "scaled_dot_product_attention", _attention)
    replace.wrap(torch, "set_default_tensor_type", _default_type)
    replace.put(torch, "Generator", _Generator)
    replace.wrap(torch._C, "_group_tensors_by_device_and_dtype", _grouping)


def _default_device() -> torch.device | None:
    """The device of `torch.set_default_device` or of `with torch.device(...)`."""
    if not torch._C._len_torch_function_stack():
        return None
    for mode in reversed(torch.overrides._get_current_function_mode_stack()):
        if isinstance(mode, DeviceContext):
            return mode.device
    return None


def _default_type(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def set_default_tensor_type(t: Any) -> None:
        name = t if isinstance(t, str) else f"{t.__module__}.{t.__name__}"
        if name.startswith("torch.cuda."):
            raise VirtualDeviceError(
                f"torch.set_default_tensor_type({name})",
                "Write torch.set_default_device('cuda'), and torch.set_default_dtype(...).",
            )
        old(t)

    return set_default_tensor_type


def _factory(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def make(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is None:
            device = _default_device()
        pinned = bool(kwargs.get("pin_memory"))
        if pinned:
            kwargs["pin_memory"] = False
        up = is_cuda(device)
        if up:
            kwargs["device"] = "cpu"
        with in_factory():
            made = old(*args, **kwargs)
        if up and made.layout is not torch.strided:
            made = made.clone()  # sparse factories keep the parts that they are given
        if up or pinned:
            put(made, Place.DEVICE if up else Place.PINNED)
        return made

    return make


def _sparse(old: Callable[..., Any]) -> Callable[..., Any]:
    make_as_factory = _factory(old)

    @wraps(old)
    def make(*args: Any, **kwargs: Any) -> Any:
        parts = [each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)]
        device = kwargs.get("device")
        if device is None:
            device = _default_device()
        up = is_cuda(device) or (device is None and any(map(on_device, parts)))
        of_data = len(args) > 1 or "values" in kwargs
        has_size = len(args) > _SPARSE[old.__name__] or kwargs.get("size") is not None
        if up and of_data and not has_size and all(each.numel() for each in parts):
            record(
                f"torch.{old.__name__}",
                "Without a size the host reads the largest indices to find it.",
            )
        return make_as_factory(*args, **kwargs)

    return make


def _like(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def make(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        pinned = bool(kwargs.get("pin_memory"))
        if pinned:
            kwargs["pin_memory"] = False
        if is_cuda(device):
            kwargs["device"] = "cpu"
        made = old(*args, **kwargs)
        if is_cuda(device):
            put(made, Place.DEVICE)
        elif pinned or is_cpu(device):
            put(made, Place.PINNED if pinned else None)
        return made

    return make


def _from_data(old: Callable[..., Any]) -> Callable[..., Any]:
    api = f"torch.{old.__name__}"

    @wraps(old)
    def make(*args: Any, **kwargs: Any) -> Any:
        name = "obj" if old.__name__ == "asarray" else "data"
        if not args and name not in kwargs:
            return old(**kwargs)  # raises torch's own error
        data = kwargs.pop(name) if not args else args[0]
        args = args[1:]
        device = kwargs.get("device")
        if device is None:
            device = _default_device()
        pinned = bool(kwargs.get("pin_memory"))
        if pinned:
            kwargs["pin_memory"] = False
        up = is_cuda(device)
        if isinstance(data, Tensor):
            there = on_device(data)
            up = up or (there and device is None)
            if (up and not there) or (there and is_cpu(device)):
                data = move(data, to_device=up, api=api)  # a gradient takes the way back
        if up and device is not None:
            kwargs["device"] = "cpu"
        with in_factory(), quiet() if isinstance(data, Tensor) else nullcontext():
            made = old(data, *args, **kwargs)
        if up and not isinstance(data, Tensor):
            record_upload(api, made)
            if old.__name__ != "tensor":
                made = made.clone()  # it may share the host's memory, which must not be marked
        if up or pinned:
            put(made, Place.DEVICE if up else Place.PINNED)
        return made

    return make


def _one_hot(old: Callable[..., Any]) -> Callable[..., Any]:
    """On the CPU torch checks the values; on a GPU it reads them only to find their maximum."""

    @wraps(old)
    def one_hot(tensor: Tensor, num_classes: int = -1) -> Any:
        if not on_device(tensor):
            return old(tensor, num_classes)
        if num_classes == -1:
            record(
                "aten::one_hot", "The number of classes is the largest value: the host reads it."
            )
        with quiet():
            return old(tensor, num_classes)

    return one_hot


def _checked_on_host_only(old: Callable[..., Any]) -> Callable[..., Any]:
    """On the CPU torch checks that quantiles are in [0, 1]; on a GPU it does not."""

    @wraps(old)
    def compute(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not on_device(self):
            return old(self, *args, **kwargs)
        with quiet():
            return old(self, *args, **kwargs)

    return compute


def _ctc_loss(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def ctc_loss(log_probs: Tensor, targets: Tensor, *lengths: Any, **kwargs: Any) -> Any:
        for length in lengths[:2]:
            if isinstance(length, Tensor) and on_device(length):
                record_download("torch.ctc_loss", length)
        return old(log_probs, targets, *lengths, **kwargs)

    return ctc_loss


def _attention(old: Callable[..., Any]) -> Callable[..., Any]:
    """The CPU lacks some of a GPU's kernels: if the plain one is disabled, allows it here."""

    @wraps(old)
    def attention(query: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not on_device(query) or torch.backends.cuda.math_sdp_enabled():
            return old(query, *args, **kwargs)
        torch.backends.cuda.enable_math_sdp(True)
        try:
            return old(query, *args, **kwargs)
        finally:
            torch.backends.cuda.enable_math_sdp(False)

    return attention


def _grouping(old: Callable[..., Any]) -> Callable[..., Any]:
    """Groups by the virtual device too, as optimizers and gradient clipping expect on a GPU."""

    @wraps(old)
    def group(tensors: Any, with_indices: bool = False) -> Any:
        groups: dict[Any, Any] = {}
        for (device, dtype), (lists, indices) in old(tensors, True).items():
            for number, first in enumerate(lists[0]):
                where = CUDA if isinstance(first, Tensor) and on_device(first) else device
                here = groups.setdefault((where, dtype), ([[] for _ in lists], []))
                for kept, given in zip(here[0], lists, strict=True):
                    if given:
                        kept.append(given[number])
                if with_indices:
                    here[1].append(indices[number])
        return groups

    return group


_TorchGenerator = torch.Generator


class _AnyGenerator(type(torch.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _TorchGenerator)


class _Generator(_TorchGenerator, metaclass=_AnyGenerator):
    """A generator that may be for the virtual device, but draws on the host."""

    _place: torch.device

    def __new__(cls, device: Any = None) -> _Generator:
        made = super().__new__(cls, device="cpu")  # type: ignore[call-arg]
        made._place = CUDA if is_cuda(device) else torch.device("cpu")
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device that the program asked for."""
        return self._place
