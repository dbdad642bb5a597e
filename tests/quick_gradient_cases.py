"""Calls whose gradient is recorded by one node, and who runs."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from syncfree.functional.image import peak_signal_noise_ratio
from syncfree.losses._ssim_node import SsimLoss
from test_gradient_laws import CALLS, pair

SSIM_OPTIONS = (True, (1.5,), (11,), 1.0, None, 0.01, 0.03, 1, False)
PSNR_OPTIONS = (1.0, None, 10.0, 1, None)


def node_of(value: Tensor) -> str:
    assert value.grad_fn is not None
    return value.grad_fn.name()


def leaves(device: str) -> tuple[Tensor, Tensor]:
    a, b = pair(device)
    return a.requires_grad_(), b.requires_grad_()


def in_one_pass(preds: Tensor, target: Tensor) -> Tensor:
    value: Tensor = SsimLoss.quick(preds, target, 0.2, True, SSIM_OPTIONS)
    return value


def psnr_of_elements(preds: Tensor, target: Tensor) -> Tensor:
    return peak_signal_noise_ratio(preds, target, 1.0, dim=(), reduction="none")


QUICK_CALLS = {name: call for name, call in CALLS.items() if name != "image-quality"}
# Nodes in forms that those calls do not take on a CPU, or not of images.
QUICK_NODES = {**QUICK_CALLS, "loss-in-one-pass": in_one_pass, "no-dim": psnr_of_elements}

every_call = pytest.mark.parametrize("call", QUICK_CALLS.values(), ids=QUICK_CALLS)
every_node = pytest.mark.parametrize("call", QUICK_NODES.values(), ids=QUICK_NODES)


class Ops(TorchDispatchMode):
    """Those of ours that run, by name, with their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, tuple[Any, ...]]] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        name = str(function)
        if name.startswith("syncfree."):
            self.seen.append((name.split(".")[1], args))
        return function(*args, **(kwargs or {}))

    def names(self) -> list[str]:
        return [name for name, _ in self.seen]
