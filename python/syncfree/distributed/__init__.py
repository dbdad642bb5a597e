"""Evaluation over many GPUs and hosts, with work handed out as ranks become free.

Only the store of `torch.distributed` is used, never a collective.

A fleet is the processes, or ranks, that share a store. In a run, a coordinator hands out items (an
item is an index, and has a cost) in rounds; a worker on each rank claims chunks of a round's items
and settles each item with an outcome. A word is what the coordinator publishes to all workers: a
round, or the end. Suspects are items that a rank held when it was lost.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syncfree.distributed.evaluation import Evaluation, evaluate
    from syncfree.distributed.fleet import Fleet, connect
    from syncfree.distributed.launcher import launch, local_devices
    from syncfree.distributed.sampler import DynamicSampler
    from syncfree.distributed.statistics import FleetStatistics, RankReport, RankStatistics

_NAMES = {
    "DynamicSampler": "sampler",
    "Evaluation": "evaluation",
    "Fleet": "fleet",
    "FleetStatistics": "statistics",
    "RankReport": "statistics",
    "RankStatistics": "statistics",
    "connect": "fleet",
    "evaluate": "evaluation",
    "launch": "launcher",
    "local_devices": "launcher",
}

__all__ = [
    "DynamicSampler",
    "Evaluation",
    "Fleet",
    "FleetStatistics",
    "RankReport",
    "RankStatistics",
    "connect",
    "evaluate",
    "launch",
    "local_devices",
]


def __getattr__(name: str) -> Any:
    # The scheduling policy and the statistics are used where torch is not needed.
    if name in _NAMES:
        return getattr(import_module(f"syncfree.distributed.{_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
