"""Runs the detector's own operators so that no mode of the program sees or changes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def beneath_modes() -> Iterator[None]:
    """Disables the program's function and dispatch modes, such as that of fake tensors."""
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield
