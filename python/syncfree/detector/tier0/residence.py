"""Where the memory of a tensor would be on a machine with a GPU.

The mark is an attribute of the storage's Python object, which torch keeps as long as the storage
lives. So all tensors that share the memory share the mark, also those that only C++ holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from syncfree.detector.tier0.recording import see
from syncfree.errors import VirtualDeviceError

CUDA = torch.device("cuda", 0)


class Place(Enum):
    """Kinds of memory; any other memory is pageable host memory."""

    DEVICE = "device"
    PINNED = "pinned"
    # Not decided yet: made by C++ code inside an operation, which on a GPU would have used the
    # device of its inputs. The first operation that writes to it with a marked tensor as an
    # argument puts it on the device.
    OPEN = "open"


_NAME = "_syncfree_place"
_PLAIN = (Tensor, torch.nn.Parameter)
_storage_of = torch._C.TensorBase.untyped_storage


def place_of(tensor: Tensor) -> Place | None:
    """The place of a tensor's memory; None for pageable host memory."""
    if type(tensor) in _PLAIN:
        try:
            return getattr(_storage_of(tensor), _NAME, None)
        except (NotImplementedError, RuntimeError):
            pass  # sparse
    for storage in _storages(tensor):
        return getattr(storage, _NAME, None)
    return None


def on_device(tensor: Tensor) -> bool:
    """Whether the memory of a tensor would be the GPU's."""
    return place_of(tensor) is Place.DEVICE


def put(tensor: Tensor, place: Place | None) -> None:
    """Sets the place of a tensor's memory; for a sparse tensor, of all its parts."""
    if place is Place.DEVICE:
        see()
    if type(tensor) in _PLAIN:
        try:
            setattr(_storage_of(tensor), _NAME, place)
            return
        except (NotImplementedError, RuntimeError):
            pass  # sparse
    for storage in _storages(tensor):
        if storage.device.type != "meta":  # a fake tensor's, which has no memory
            setattr(storage, _NAME, place)


def put_storage(storage: Any, place: Place | None) -> None:
    """As `put` for a storage."""
    setattr(storage, _NAME, place)


def storage_on_device(storage: Any) -> bool:
    """As `on_device` for a storage."""
    return getattr(storage, _NAME, None) is Place.DEVICE


def same_memory(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors share a storage."""
    mine = {storage._cdata for storage in _storages(a)}
    return any(storage._cdata in mine for storage in _storages(b))


def size_of(tensor: Tensor) -> int:
    """The size of a tensor's elements in bytes."""
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.numel() * tensor.element_size()


def _storages(tensor: Tensor) -> list[Any]:
    # Subclasses of other packages must not intercept this.
    with torch._C.DisableTorchFunctionSubclass():
        return list(_parts(tensor))


def _parts(tensor: Any) -> Iterator[Any]:
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        yield from _parts(torch._C._functorch.get_unwrapped(tensor))
    elif is_traceable_wrapper_subclass(tensor):
        for part in (getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]):
            if isinstance(part, Tensor):  # a DTensor names its mesh, too
                yield from _parts(part)
    elif tensor.layout is torch.strided:
        try:
            yield _storage_of(tensor)
        except (NotImplementedError, RuntimeError):
            return  # has no memory
    elif tensor.layout is torch.sparse_coo:
        yield _storage_of(tensor._values())
        yield _storage_of(tensor._indices())
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        yield from map(_storage_of, (tensor.values(), tensor.crow_indices(), tensor.col_indices()))
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        yield from map(_storage_of, (tensor.values(), tensor.ccol_indices(), tensor.row_indices()))


def is_cuda(device: Any) -> bool:
    """Whether a ``device=`` argument names the virtual device.

    Raises:
        VirtualDeviceError: It names a second GPU.
    """
    if device is None:
        return False
    if isinstance(device, int) and not isinstance(device, bool):
        index: int | None = device
    else:
        # A string that names no device raises torch's own error.
        parsed = torch.device(device)
        if parsed.type != "cuda":
            return False
        index = parsed.index
    if index not in (None, 0):
        raise VirtualDeviceError(
            f"device cuda:{index}",
            "The virtual machine has one GPU, cuda:0: use that, and start one process, as with "
            "torchrun --nproc-per-node 1.",
        )
    return True


def is_cpu(device: Any) -> bool:
    """Whether a ``device=`` argument names the host."""
    if device is None or isinstance(device, int):
        return False
    return torch.device(device).type == "cpu"
