"""Without a GPU, runs the fixtures of tests that must not wait inside of tier 0 too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from syncfree.detector.regions import Region

FIXTURE = "_syncfree_virtual_device"


class VirtualDevice:
    """Tier 0 around the function-scoped fixtures of a test, the test, and their teardown.

    Fixtures choose the device as often as tests do. Waits in this region do not count: the judged
    code is inside of a region of its own.
    """

    def __init__(self) -> None:
        self._region: Region | None = None

    @contextmanager
    def open(self, tier: str) -> Iterator[None]:
        """Inside, torch sees the virtual device, if the test will be judged by tier 0."""
        from syncfree.detector.regions import detect_syncs
        from syncfree.detector.tiers import BY_NAME, has_gpu

        if tier not in ("auto", "0") or has_gpu():
            yield
            return
        region = self._region = detect_syncs(tier=BY_NAME[tier])
        region.open()
        try:
            yield
        finally:
            self._region = None
            region.close()

    @contextmanager
    def left(self) -> Iterator[None]:
        """Inside, tier 0 is closed, as in other tests, which may get what is made there too."""
        region = self._region
        if region is None:
            yield
            return
        region.close()
        try:
            yield
        finally:
            region.open()


def put_first(item: pytest.Function) -> None:
    """Puts the fixture that opens tier 0 before all other function-scoped fixtures of a test."""
    names = list(item.fixturenames)  # a copy: all parametrizations of the function share the list
    if FIXTURE in names:
        return
    found = item._fixtureinfo.name2fixturedefs
    of_function = [
        number
        for number, name in enumerate(names)
        if name in found and found[name][-1].scope == "function"
    ]
    names.insert(of_function[0] if of_function else len(names), FIXTURE)
    item.fixturenames = names
