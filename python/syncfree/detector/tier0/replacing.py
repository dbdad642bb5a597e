"""Replaces attributes of torch for the time of a tier, and puts everything back.

Modules that hold a function under a name of their own (`from torch import tensor`) are changed too:
they are found by identity among all loaded modules, on the way in and on the way out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

_MISSING = object()


class Replacements:
    """A list of replaced attributes, last in, first out."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []
        self._new_of: dict[int, tuple[Any, Any]] = {}
        self._old_of: dict[int, tuple[Any, Any]] = {}

    def put(self, owner: Any, name: str, new: Any) -> None:
        """Sets an attribute of a class or module; what a class inherits is not touched."""
        old = vars(owner).get(name, _MISSING)
        self._undo.append((owner, name, old))
        if isinstance(owner, ModuleType) and callable(old):
            if id(new) in self._old_of and self._old_of[id(new)][1] is not old:
                new = _twin(new)  # one answer to two functions could not be told apart later
            # The objects are kept along: the identity of a dead one may be given to another.
            self._new_of[id(old)] = (old, new)
            self._old_of[id(new)] = (new, old)
        setattr(owner, name, new)

    def hide(self, owner: Any, name: str) -> None:
        """Takes an attribute away."""
        self._undo.append((owner, name, getattr(owner, name)))
        delattr(owner, name)

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Sets an attribute to what `make` makes of the present one, if there is one."""
        old = getattr(owner, name, None)
        if old is not None:
            self.put(owner, name, make(old))

    def original(self, function: Any) -> Any:
        """What a function of ours stands for; any other is itself."""
        return self._old_of.get(id(function), (None, function))[1]

    def spread(self) -> None:
        """Replaces what other modules imported by name."""
        _exchange(self._new_of)

    def restore(self) -> None:
        """Puts everything back, in modules that were loaded meanwhile too."""
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
        # Our own files hold the originals on purpose.
        if name.startswith("syncfree.detector.tier0") or not isinstance(module, ModuleType):
            continue
        namespace = vars(module)
        for key, value in list(namespace.items()):
            if id(value) in pairs:
                namespace[key] = pairs[id(value)][1]
