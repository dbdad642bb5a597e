"""Keywords that a metric's class passes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

# What `torchmetrics.Metric` takes. One that is new there is refused by it alone.
_OF_EVERY_METRIC = {
    "compute_on_cpu",
    "compute_with_cache",
    "dist_sync_fn",
    "dist_sync_on_step",
    "distributed_available_fn",
    "process_group",
    "sync_on_compute",
}


@contextmanager
def naming_unknown(keywords: Mapping[str, Any]) -> Iterator[None]:
    """Where a check of arguments fails, a misspelled keyword is the likelier reason: it is named.

    Raises:
        ValueError: If the check fails and there is a keyword that no metric knows.
    """
    try:
        yield
    except (TypeError, ValueError):
        unknown = sorted(keywords.keys() - _OF_EVERY_METRIC)
        if unknown:
            names = ", ".join(f"`{name}`" for name in unknown)
            raise ValueError(f"Unexpected keyword arguments: {names}") from None
        raise
