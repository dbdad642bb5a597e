"""Bounds the memory of pictures that are decoded ahead."""

from __future__ import annotations

import threading
from collections import defaultdict


class Budget:
    """Limits the bytes that numbered pieces of work hold together, except the one whose turn it is.

    That one never waits for room, so that work that somebody waits for always ends, however large
    it is and whatever later work holds.

    Args:
        most: bytes.

    Example:
        >>> from syncfree.cli.compare.budget import Budget
        >>> budget = Budget(100)
        >>> budget.reserve(0, 90)
        >>> budget.turn(1)
        >>> budget.reserve(1, 90)
        >>> budget.held
        180
    """

    def __init__(self, most: int) -> None:
        self.held = 0
        self._most = most
        self._of_each: defaultdict[int, int] = defaultdict(int)
        self._turn = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def reserve(self, number: int, size: int) -> None:
        """Add to what a piece of work holds; waits until there is room, or until its turn.

        Raises:
            RuntimeError: the budget was closed.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or number <= self._turn or self.held + size <= self._most
            )
            if self._is_closed:
                raise RuntimeError("the budget was closed: the work that asks has been called off")
            self.held += size
            self._of_each[number] += size

    def turn(self, number: int) -> None:
        """Say which piece of work somebody waits for now."""
        with self._changed:
            self._turn = number
            self._changed.notify_all()

    def release(self, number: int) -> None:
        """Give back what a piece of work holds."""
        with self._changed:
            self.held -= self._of_each.pop(number, 0)
            self._changed.notify_all()

    def close(self) -> None:
        """End all waits with an error: work that still has to reserve is no longer needed."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
