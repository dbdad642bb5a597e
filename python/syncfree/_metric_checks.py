"""What a metric looks at before each call, in C where the extension for this Python is there."""

from __future__ import annotations

from sys import getrefcount
from typing import Any

__all__ = ["all_empty", "is_held_by_more"]


def _count_references(holder: dict[str, Any], name: str) -> int:
    return getrefcount(holder[name])


# Of what a dictionary alone holds. How the call's own count depends on the version of Python.
_COUNTED_ALONE = _count_references({"state": object()}, "state")


def all_empty_in_python(holder: dict[str, Any], names: tuple[str, ...], /) -> bool:
    """Whether each of the entries with these names is missing, None or an empty dict."""
    entries = map(holder.get, names)
    return all(entry is None or (isinstance(entry, dict) and not entry) for entry in entries)


def is_held_by_more_in_python(holder: dict[str, Any], named: dict[str, Any], most: int, /) -> bool:
    """Whether an entry with a name of the second dict has more references than that."""
    counted = most - 1 + _COUNTED_ALONE
    return any(name in holder and getrefcount(holder[name]) > counted for name in named)


try:
    from syncfree._runtime import all_empty, is_held_by_more
except ImportError:  # built for another Python; the ops need none
    all_empty, is_held_by_more = all_empty_in_python, is_held_by_more_in_python
