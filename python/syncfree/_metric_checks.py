"""What a metric looks at before each call, in C where the extension for this Python is there."""

from __future__ import annotations

from sys import getrefcount
from typing import Any

import torch
from torch import Tensor

__all__ = ["all_unset", "are_shared", "is_held_by_more"]


def _count_references(holder: dict[str, Any], name: str) -> int:
    return getrefcount(holder[name])


def _count_users(tensor: Tensor) -> int:
    """Of its storage, among them the storage's own Python object, which this makes."""
    return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


# Of what a dictionary alone holds. How the calls' own count depends on the versions of Python and
# torch.
_COUNTED_ALONE = _count_references({"state": object()}, "state")
_USERS_ALONE = _count_users(torch.zeros(1, device="cpu"))


def all_unset_in_python(*holders_and_names: Any) -> bool:
    """Whether each entry of a dict with one of the names that follow it is set to nothing.

    It may be missing, None, False or an empty dict.
    """
    pairs = zip(holders_and_names[::2], holders_and_names[1::2], strict=True)
    return all(_is_unset(holder.get(name)) for holder, names in pairs for name in names)


def _is_unset(entry: object) -> bool:
    return entry is None or entry is False or (isinstance(entry, dict) and not entry)


def is_held_by_more_in_python(holder: dict[str, Any], named: dict[str, Any], most: int, /) -> bool:
    """Whether an entry with a name of the second dict has more references than that.

    Or is a tensor whose storage has another user, as a detached one or an array of numpy.
    """
    counted = most - 1 + _COUNTED_ALONE
    return any(
        name in holder and (getrefcount(holder[name]) > counted or _is_shared(holder[name]))
        for name in named
    )


def are_shared_in_python(attributes: dict[str, Any], /) -> bool:
    """Whether others hold states of the metric with these attributes and do not mean to."""
    most = 1 + attributes.get("_followers", 0)
    return is_held_by_more(attributes, attributes["_defaults"], most)


def _is_shared(state: object) -> bool:
    if type(state) is not Tensor or not torch._C._has_storage(state):
        return False
    return _count_users(state) > _USERS_ALONE


def _finds_users() -> bool:
    """Whether C sees the users of storages, where torch keeps their number without a promise."""
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
except ImportError:  # built for another Python; the ops need none
    all_unset, are_shared = all_unset_in_python, are_shared_in_python
    is_held_by_more = is_held_by_more_in_python
else:
    if not _finds_users():
        are_shared, is_held_by_more = are_shared_in_python, is_held_by_more_in_python
