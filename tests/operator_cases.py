"""What tests of operators and forward lines share."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fake_cupti import FakeCupti
from syncfree import _runtime
from syncfree.detector import Finding, Report
from syncfree.detector.stack import machinery


class WaitInside(TorchDispatchMode):
    """Waits for the GPU inside of one operator, whoever calls it."""

    def __init__(self, fake: FakeCupti, operator: str) -> None:
        super().__init__()
        self._wait = fake.call("cuStreamSynchronize")
        self._operator = operator

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func._schema.name == self._operator:
            self._wait()
        return func(*args, **(kwargs or {}))


class Waits(torch.autograd.Function):
    wait: Any = None

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        Waits.wait()
        return gradient * 2


def operators(report: Report) -> list[tuple[str, ...]]:
    return [each.event.op_stack for each in report.findings]


def forward(finding: Finding) -> str:
    """The comment at the end of the forward line."""
    assert finding.event.forward is not None
    return finding.event.forward.source.rpartition("# ")[2]


class Listener:
    """The functions that csrc/record calls, to call them as torch would.

    `end` is a function of C, so that the innermost Python frame is the line that calls it.
    """

    class _Functions(ctypes.Structure):
        _fields_ = (
            (
                "begin",
                ctypes.CFUNCTYPE(
                    *(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_bool, ctypes.c_int64),
                    ctypes.c_uint64,
                ),
            ),
            ("end", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)),
        )

    def __init__(self, *folders: str) -> None:
        self.address = _runtime.listen_to_operators([*machinery(), *folders])
        self._functions = self._Functions.from_address(self.address)
        self.end = self._functions.end

    def begin(self, identity: int, name: str, sequence: int = -1) -> None:
        self._functions.begin(identity, name.encode(), False, sequence, 0)
