"""Whether calls keep what they were given."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence


def assert_nothing_is_kept(repeat: Callable[[], None], given: Sequence[object]) -> None:
    """Calls ``repeat``, a hundred calls with what was ``given``, and counts references to that."""
    repeat()
    gc.collect()
    before = [sys.getrefcount(each) for each in given]
    repeat()
    gc.collect()
    after = [sys.getrefcount(each) for each in given]
    assert all(abs(a - b) < 50 for a, b in zip(before, after, strict=True))
