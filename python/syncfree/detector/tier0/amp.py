"""Autocast for "cuda" also sets that of the CPU, on which torch sees the marked tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from syncfree.detector.tier0.replacing import Replacements


def install(replace: Replacements) -> None:
    """Replaces the two setters; torch still keeps the state for "cuda"."""
    replace.wrap(torch, "set_autocast_enabled", _enabling)
    replace.wrap(torch, "set_autocast_dtype", _setting_dtype)


def _enabling(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def set_enabled(*args: Any) -> None:
        old(*args)
        if args[0] == "cuda":
            old("cpu", args[1])
        elif len(args) == 1:  # the old form without a device means "cuda"
            old("cpu", args[0])

    return set_enabled


def _setting_dtype(old: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(old)
    def set_dtype(device_type: str, dtype: torch.dtype) -> None:
        old(device_type, dtype)
        if device_type == "cuda":
            old("cpu", dtype)

    return set_dtype
