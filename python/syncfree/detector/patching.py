"""Replaces an attribute temporarily, and leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Patch:
    """An attribute of a module or class that is replaced between `install` and `remove`.

    Other code may patch on top of the replacement and stay longer. Then the replacement remains in
    place and calls the original.

    Args:
        owner: The module or class.
        name: The attribute, a function.
        make: Gets the original and returns its replacement.
    """

    def __init__(self, owner: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> None:
        self._owner = owner
        self._name = name
        self._make = make
        self._is_installed = False
        self.original: Any = getattr(owner, name)

    def install(self) -> None:
        """Puts the replacement in place."""
        original = self.original = getattr(self._owner, self._name)
        replaced = self._make(original)

        def replacement(*args: Any, **kwargs: Any) -> Any:
            return (replaced if self._is_installed else original)(*args, **kwargs)

        self._replacement = replacement
        self._is_installed = True
        setattr(self._owner, self._name, replacement)

    def remove(self) -> None:
        """Puts the original back."""
        self._is_installed = False
        if getattr(self._owner, self._name) is self._replacement:
            setattr(self._owner, self._name, self.original)
