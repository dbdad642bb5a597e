"""Names that syncfree has nothing of its own for: they are TorchMetrics' objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from syncfree.errors import MissingExtraError


def counterpart(module: str) -> str:
    """The module of TorchMetrics in whose place ``module`` stands."""
    return "torchmetrics" + module.removeprefix("syncfree")


def is_installed() -> bool:
    """Whether TorchMetrics can be imported; does not import it."""
    return find_spec("torchmetrics") is not None


def require(module: str) -> None:
    """Imports TorchMetrics, whose classes ours are; MissingExtraError if it is not installed."""
    if not is_installed():
        raise MissingExtraError(f"`{module}`", "torchmetrics")
    # As a whole: its modules import each other in circles, so that threads which begin with
    # different ones find them half done.
    import_module("torchmetrics")


def resolve(module: str, name: str, own: Sequence[str] = (), *, with_private: bool = False) -> Any:
    """What ``module`` has under a name that is not ours: TorchMetrics' object, imported now.

    For packages, whose names ``own`` are, ``__all__`` lists those and TorchMetrics'.
    ``with_private`` is for modules of one metric, out of which people import TorchMetrics' helpers.

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
                return import_module(f"{module}.{name}")  # ours, where there is one
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
        # Of packages that need TorchMetrics there is no table: it is imported.
        theirs = NAMES.get(module) or import_module(counterpart(module)).__all__
    return sorted({*own, *theirs})
