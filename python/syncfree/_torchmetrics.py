"""Resolves names that syncfree does not define to TorchMetrics' objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from syncfree.errors import MissingExtraError


def counterpart(module: str) -> str:
    """The module of TorchMetrics that ``module`` replaces."""
    return "torchmetrics" + module.removeprefix("syncfree")


def is_installed() -> bool:
    """Whether TorchMetrics can be imported; does not import it."""
    return find_spec("torchmetrics") is not None


def require(module: str) -> None:
    """Imports TorchMetrics, on which ``module`` builds; MissingExtraError if it is missing."""
    if not is_installed():
        raise MissingExtraError(f"`{module}`", "torchmetrics")
    # The whole package: its modules import each other in circles, so that threads that begin with
    # different ones would find them half initialized.
    import_module("torchmetrics")


def resolve(module: str, name: str, own: Sequence[str] = (), *, with_private: bool = False) -> Any:
    """TorchMetrics' object for a name that ``module`` does not define, imported now.

    ``own`` are the names that a package defines; its ``__all__`` lists those and TorchMetrics'.
    ``with_private`` is for modules of one metric, from which people import TorchMetrics' helpers.

    Raises:
        AttributeError: If TorchMetrics does not have it either, or the name is private.
        MissingExtraError: If TorchMetrics has it and is not installed.
    """
    if own and name == "__all__":
        return sorted({*own, *_offered(module)})
    if not name.startswith("__" if with_private else "_"):
        if not is_installed():
            from syncfree._torchmetrics_names import has

            if has(module, name):
                raise MissingExtraError(f"`{module}.{name}`", "torchmetrics")
        else:
            require(module)
            value = getattr(import_module(counterpart(module)), name, None)
            if not isinstance(value, ModuleType):
                if value is not None:
                    return value
            elif value.__name__.startswith("torchmetrics."):
                return import_module(f"{module}.{name}")  # ours, if there is one
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def _offered(module: str) -> list[str]:
    if not is_installed():
        return []
    require(module)
    theirs = import_module(counterpart(module))
    return [name for name in theirs.__all__ if hasattr(theirs, name)]


def listing(module: str, own: Sequence[str]) -> list[str]:
    """What ``dir`` shows: our names and TorchMetrics' public ones."""
    from syncfree._torchmetrics_names import NAMES

    theirs: Iterable[str] = ()
    if is_installed():
        # NAMES has no packages of ours that need TorchMetrics: for these it is imported.
        theirs = NAMES.get(module) or import_module(counterpart(module)).__all__
    return sorted({*own, *theirs})
