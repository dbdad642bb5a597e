"""Keyword arguments that a metric's class passes on to TorchMetrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torchmetrics import Metric


class _AnyMetric(Metric):
    """Takes what every metric takes, whatever the version of TorchMetrics."""

    def update(self) -> None:
        """Counts nothing."""

    def compute(self) -> None:
        """Has no value."""


@contextmanager
def naming_unknown(keywords: Mapping[str, Any]) -> Iterator[None]:
    """If a check of arguments inside fails, names an unknown keyword as the likelier reason.

    Raises:
        ValueError: If the check fails and there is a keyword that no metric knows, or one with a
            wrong value.
    """
    try:
        yield
    except (TypeError, ValueError):
        try:
            _AnyMetric(**keywords)
        except ValueError as likelier:
            raise likelier from None
        raise
