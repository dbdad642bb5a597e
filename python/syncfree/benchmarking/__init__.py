"""Measures functions: GPU events behind a gate, statistics with their uncertainty, verdicts.

A *gate* is a kernel that spins for a bounded time and holds the stream while the host enqueues the
call: a *gated* sample contains no launch time of the host, a *plain* one does. A *contender* is one
of the functions to measure, its *probe* takes its samples, and a *loop* times calls back to back.

Names load on first use: the pytest plugin is active in every session and must not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syncfree.benchmarking.api import benchmark
    from syncfree.benchmarking.gap_verdict import GapPoint, GapVerdict
    from syncfree.benchmarking.gaps import IdleGap, idle_gap
    from syncfree.benchmarking.result import Comparison, Result
    from syncfree.benchmarking.verdict import Verdict

_NAMES = {
    "Comparison": "result",
    "GapPoint": "gap_verdict",
    "GapVerdict": "gap_verdict",
    "IdleGap": "gaps",
    "Result": "result",
    "Verdict": "verdict",
    "benchmark": "api",
    "idle_gap": "gaps",
}

__all__ = [
    "Comparison",
    "GapPoint",
    "GapVerdict",
    "IdleGap",
    "Result",
    "Verdict",
    "benchmark",
    "idle_gap",
]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
