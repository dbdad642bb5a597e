"""Checks that a metric makes before each call, in C if the extension for this Python is there."""

from __future__ import annotations

from sys import getrefcount
from typing import Any

import torch
from torch import Tensor

__all__ = ["all_unset", "are_shared", "is_held_by_more"]


def _count_references(holder: dict[str, Any], name: str) -> int:
    return getrefcount(holder[name])


def _count_users(tensor: Tensor) -> int:
    """The users of a tensor's storage, including the Python object of it that this call makes."""
    return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


# The counts for an object that a dictionary alone holds. How many the calls themselves add depends
# on the versions of Python and torch.
_COUNTED_ALONE = _count_references({"state": object()}, "state")
_USERS_ALONE = _count_users(torch.zeros(1, device="cpu"))


def all_unset_in_python(*holders_and_names: Any) -> bool:
    """Whether all named entries are unset, for pairs of a dict and a tuple of names.

    An unset entry is missing, None, False or an empty dict.
    """
    pairs = zip(holders_and_names[::2], holders_and_names[1::2], strict=True)
    return all(_is_unset(holder.get(name)) for holder, names in pairs for name in names)


def _is_unset(entry: object) -> bool:
    return entry is None or entry is False or (isinstance(entry, dict) and not entry)


def is_held_by_more_in_python(holder: dict[str, Any], named: dict[str, Any], most: int, /) -> bool:
    """Whether an entry of ``holder`` named in ``named`` has more than ``most`` references.

    Also true for a tensor whose storage has another user: a detached tensor or a NumPy array.
    """
    counted = most - 1 + _COUNTED_ALONE
    return any(
        name in holder and (getrefcount(holder[name]) > counted or _is_shared(holder[name]))
        for name in named
    )


def are_shared_in_python(attributes: dict[str, Any], /) -> bool:
    """Whether somebody besides the metric and its followers (see `_states`) holds a state of it."""
    most = 1 + attributes.get("_followers", 0)
    return is_held_by_more(attributes, attributes["_defaults"], most)


def _is_shared(state: object) -> bool:
    if type(state) is not Tensor or not torch._C._has_storage(state):
        return False
    return _count_users(state) > _USERS_ALONE


def _finds_users() -> bool:
    """Whether the C code finds the use count of storages, whose place torch does not promise."""
    asked = torch.zeros(1, device="cpu")
    if not look_into_storages(asked, asked._cdata, asked.untyped_storage()._cdata):
        return False
    holder = {"asked": asked, "fresh": torch.zeros(1, device="cpu")}
    del asked

    def answers() -> list[bool]:
        return [_runtime.is_held_by_more(holder, {name: None}, 1) for name in holder]

    before = answers()
    detached = [holder[name].detach() for name in holder]
    between = answers()
    detached.clear()
    return (before, between, answers()) == ([False, False], [True, True], [False, False])


try:
    from syncfree import _runtime
    from syncfree._runtime import all_unset, are_shared, is_held_by_more, look_into_storages
except ImportError:  # built for another Python; the ops do without it
    all_unset, are_shared = all_unset_in_python, are_shared_in_python
    is_held_by_more = is_held_by_more_in_python
else:
    if not _finds_users():
        are_shared, is_held_by_more = are_shared_in_python, is_held_by_more_in_python
