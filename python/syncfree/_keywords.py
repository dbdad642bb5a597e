"""Keyword arguments that a metric's class passes on to TorchMetrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

# The keywords of `torchmetrics.Metric`, for an error message: Metric itself refuses unknown ones.
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
    """If a check of arguments inside fails, names an unknown keyword as the likelier reason.

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
