"""Times regions of a program on the GPU without ever waiting for it.

A *region* is a named part of a program, each execution of which is a *sample*. Some samples are
*stamped*, with kernels that read the GPU's clock, and some are *probed*: at the end of the block
the timer asks whether the GPU has begun the region.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syncfree.timing.decorator import timed
    from syncfree.timing.lightning import lightning_callback
    from syncfree.timing.samples import History, Recording, Sample
    from syncfree.timing.summary import RegionSummary, Summary
    from syncfree.timing.timer import EventTimer, default_timer

# Loaded on first use, so that `statistics` does not import torch.
_NAMES = {
    "EventTimer": "timer",
    "History": "samples",
    "Recording": "samples",
    "RegionSummary": "summary",
    "Sample": "samples",
    "Summary": "summary",
    "default_timer": "timer",
    "lightning_callback": "lightning",
    "timed": "decorator",
}

__all__ = [
    "EventTimer",
    "History",
    "Recording",
    "RegionSummary",
    "Sample",
    "Summary",
    "default_timer",
    "lightning_callback",
    "timed",
]


def __getattr__(name: str) -> Any:
    if name == "statistics":
        return import_module(f"{__name__}.{name}")
    if name in _NAMES:
        return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "statistics"]
