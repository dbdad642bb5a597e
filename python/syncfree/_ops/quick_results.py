"""Results of our operators on CUDA, made past torch's dispatcher.

By a library (csrc/empty) that was built for one minor version of torch and is loaded only there.
Elsewhere the stable ABI makes them, which takes the host 0.4 microseconds more.
"""

from __future__ import annotations

import ctypes

import torch

from syncfree import _libraries


def library_name() -> str:
    """The name of the library for the torch that runs, without prefix and ending.

    Example:
        >>> from syncfree._ops.quick_results import library_name
        >>> library_name().startswith("syncfree_empty-")
        True
    """
    return f"syncfree_empty-{_libraries.minor_version(torch.__version__)}"


def quicken_results() -> bool:
    """Has the CUDA ops make their results so, where both libraries are there; whether they are."""
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
