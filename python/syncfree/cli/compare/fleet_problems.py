"""The problems of lost processes, and of the pairs that were not compared because of them."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from syncfree.cli.compare.pairs import Pair
from syncfree.cli.compare.problems import Problem
from syncfree.distributed.coordinator import Lost

_MOST_NAMED = 20


def problem_of_loss(event: Lost, unfinished: Container[int]) -> Problem:
    """The problem of a lost rank: what became of it, and of the images that it held."""
    done = sum(item not in unfinished for item in event.items)
    others = f"; {done} of its images were compared by others" if done else ""
    return Problem("rank-lost", (), f"rank {event.rank}: {event.reason}{others}")


def problems_of_unfinished(items: dict[int, str], pairs: Sequence[Pair]) -> Iterator[Problem]:
    """The problems of pairs that nobody compared; many pairs with one reason are only counted."""
    by_reason: dict[str, list[int]] = {}
    for item, reason in sorted(items.items()):
        by_reason.setdefault(reason, []).append(item)
    for reason, found in by_reason.items():
        # When all processes are lost early, thousands of lines would hide why.
        if len(found) > _MOST_NAMED:
            yield Problem("unfinished", (), f"{len(found)} pairs not compared: {reason}")
            continue
        for item in found:
            files = (str(pairs[item].reference), str(pairs[item].test))
            yield Problem("unfinished", files, f"not compared: {reason}")
