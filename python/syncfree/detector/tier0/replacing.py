"""Replaces attributes of torch while tier 0 is in use, and puts everything back.

Modules that hold a function under a name of their own (`from torch import tensor`) are changed too:
on entry and on exit, all loaded modules are searched for the functions by identity.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_MISSING = object()


class Replacements:
    """The replaced attributes, which are put back in reverse order."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []
        self._new_of: dict[int, tuple[Any, Any]] = {}
        self._old_of: dict[int, tuple[Any, Any]] = {}

    def put(self, owner: Any, name: str, new: Any) -> None:
        """Sets an attribute of a class or module itself, not of a base class."""
        old = vars(owner).get(name, _MISSING)
        self._undo.append((owner, name, old))
        if isinstance(owner, ModuleType) and callable(old):
            if id(new) in self._old_of and self._old_of[id(new)][1] is not old:
                new = _twin(new)  # `restore` needs a different replacement for each function
            # The objects are kept alive, because the id of a dead one may be reused.
            self._new_of[id(old)] = (old, new)
            self._old_of[id(new)] = (new, old)
        setattr(owner, name, new)

    def hide(self, owner: Any, name: str) -> None:
        """Deletes an attribute."""
        self._undo.append((owner, name, getattr(owner, name)))
        delattr(owner, name)

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replaces an attribute, if it exists, by the result of `make` for it."""
        old = getattr(owner, name, None)
        if old is not None:
            self.put(owner, name, make(old))

    def original(self, function: Any) -> Any:
        """The function that a replacement replaces; any other function is returned unchanged."""
        return self._old_of.get(id(function), (None, function))[1]

    def spread(self) -> None:
        """Replaces functions that other modules imported by name."""
        _exchange(self._new_of)

    def restore(self) -> None:
        """Puts everything back, also in modules that were loaded meanwhile."""
        while self._undo:
            owner, name, old = self._undo.pop()
            if old is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, old)
        _exchange(self._old_of)
        self._new_of.clear()
        self._old_of.clear()


def _twin(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: function(*args, **kwargs)


def _exchange(pairs: dict[int, tuple[Any, Any]]) -> None:
    for name, module in list(sys.modules.items()):
        # The files of tier 0 hold the originals on purpose.
        if name.startswith("syncfree.detector.tier0") or not isinstance(module, ModuleType):
            continue
        namespace = vars(module)
        for key, value in list(namespace.items()):
            if id(value) in pairs:
                namespace[key] = pairs[id(value)][1]
