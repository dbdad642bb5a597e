"""Synchronization-free metrics for training on GPUs.

Importing the package is instant and works without a GPU and without torch; names load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from syncfree._version import __version__

if TYPE_CHECKING:
    from syncfree import errors, functional
    from syncfree._checks import check_errors
    from syncfree._info import info

_MODULES = ("errors", "functional")
_NAMES = {"check_errors": "syncfree._checks", "info": "syncfree._info"}

__all__ = ["__version__", "check_errors", "errors", "functional", "info"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"syncfree.{name}")
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'syncfree' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
