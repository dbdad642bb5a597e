"""Holds tests to leaving torch as it was: import the fixture into their module."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed
import torch.utils.flop_counter

from syncfree.detector.findings import Recorder
from syncfree.detector.tier0 import Tier0

NAMESPACES: list[Any] = [
    torch.Tensor,
    torch.UntypedStorage,
    threading.Thread,
    torch.profiler.profiler._KinetoProfile,
    *(
        module
        for name, module in list(sys.modules.items())
        if name == "torch" or name.startswith("torch.")
    ),
]


KINDS = (
    type,
    property,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.GetSetDescriptorType,
    types.WrapperDescriptorType,
)
# Torch itself adds no names to these while it works.
FIXED = (torch, torch._C, torch.Tensor, torch.UntypedStorage, torch.cuda, threading.Thread)


def everything() -> dict[tuple[str, str], Any]:
    """What stands under each name of torch, without its counters and caches."""
    return {
        (repr(space), name): value
        for space in NAMESPACES
        for name, value in list(getattr(space, "__dict__", {}).items())
        if issubclass(type(value), KINDS)
    }


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    # What torch loads, and replaces of itself, on first use.
    torch.compile(abs, backend="eager")(torch.ones(2))
    with Tier0(Recorder()):
        torch.ones(2, device="cuda").sum().item()
    before, names = everything(), [set(vars(space)) for space in FIXED]
    dtype = torch.get_autocast_dtype("cpu")
    yield
    after = everything()
    assert [k for k in before if before[k] is not after.get(k)] == []
    assert [set(vars(space)) for space in FIXED] == names
    assert not torch.cuda.is_available()
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None
    assert torch.get_autocast_dtype("cpu") is dtype
    assert not torch.is_autocast_enabled("cpu")
