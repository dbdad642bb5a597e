"""Allocates the results of our CUDA operators without torch's dispatcher.

A library (csrc/empty) does it, which is built for one minor version of torch and loaded only there.
Elsewhere the stable ABI allocates them, which takes the host 0.4 microseconds more.
"""

from __future__ import annotations

import ctypes

import torch

from syncfree import _libraries


def library_name() -> str:
    """The name of the library for the running torch, without prefix and suffix.

    Example:
        >>> from syncfree._ops.quick_results import library_name
        >>> library_name().startswith("syncfree_empty-")
        True
    """
    return f"syncfree_empty-{_libraries.minor_version(torch.__version__)}"


def quicken_results() -> bool:
    """Lets the CUDA ops allocate results so if both libraries are there; returns whether."""
    empty, ops = _libraries.find(library_name()), _libraries.find("syncfree_ops_cuda")
    if torch.version.cuda is None or empty is None or ops is None:
        return False
    try:
        make = ctypes.CDLL(str(empty)).syncfree_empty_on_cuda
        provide = ctypes.CDLL(str(ops)).syncfree_provide_empty_on_cuda
    except (OSError, AttributeError):  # a torch built in another way, or ops of an earlier syncfree
        return False
    provide.restype = None
    provide(make)
    return True
