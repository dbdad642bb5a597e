"""Operators of the detector's own, which no mode of the program is to see or to change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def beneath_modes() -> Iterator[None]:
    """Without the program's modes of functions and operators, such as of fake tensors."""
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield
