"""What an open region of tier 3 adds to the calls of a program: `make bench` prints it.

Driver calls are observed through CUPTI and operators through torch; each part is measured
separately.

It runs in a process of its own, because torch.profiler, with which other benchmarks count launches,
sees no GPU events after tier 3 was used.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest
import torch

Calls = dict[str, Callable[[], object]]
Costs = dict[str, dict[str, float]]


def host_time(call: Callable[[], object], calls: int, rounds: int = 7) -> float:
    """Microseconds of host time per call, back to back, the best of several rounds."""
    best = float("inf")
    for _ in range(rounds):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - start) / calls * 1e6)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return best


def measured(
    calls: Calls, listening: dict[str, Callable[[], AbstractContextManager[object]]]
) -> Costs:
    """Microseconds of host time per call, by the call and by what listens."""
    costs: Costs = {name: {} for name in calls}
    # In turn, so that a change of the clock affects all.
    for _ in range(3):
        for name, call in calls.items():
            for who, listen in listening.items():
                with listen():
                    took = host_time(call, calls=500)
                costs[name][who] = min(took, costs[name].get(who, took))
    return costs


@contextmanager
def driver_calls() -> Iterator[None]:
    """A region that does not listen to operators."""
    import syncfree
    from syncfree.detector import operators

    class Deaf(operators.Listening):
        def __enter__(self) -> Deaf:
            return self

    listening, operators.Listening = operators.Listening, Deaf  # type: ignore[misc]
    try:
        with syncfree.detect_syncs(tier=3):
            yield
    finally:
        operators.Listening = listening  # type: ignore[misc]


def on_gpu() -> Costs:
    import syncfree

    x = torch.ones(64, device="cuda")
    weight = torch.ones(64, device="cuda", requires_grad=True)
    event = torch.cuda.Event()
    event.record()
    pinned = torch.ones(64).pin_memory()
    calls: Calls = {
        "launch": lambda: x.add_(1),
        "launch that makes a node": lambda: weight * 2,
        "event query": lambda: event.query(),
        "copy to pinned memory": lambda: pinned.copy_(x, non_blocking=True),
        "item": lambda: x[0].item(),
    }
    listening = {
        "no region": nullcontext,
        "driver calls": driver_calls,
        "and operators": lambda: syncfree.detect_syncs(tier=3),
    }
    return measured(calls, listening)


def on_cpu() -> Costs:
    from syncfree.detector.operators import Listening

    x = torch.ones(8)
    weight = torch.ones(8, requires_grad=True)
    layer = torch.nn.Sequential(torch.nn.Linear(8, 8))
    rows = torch.ones(1, 8)
    calls: Calls = {
        "operator": lambda: x.add_(1),
        "operator that makes a node": lambda: weight * 2,
        "linear layer": lambda: layer(rows),
    }
    return measured(calls, {"no region": nullcontext, "operators": Listening})


def table(where: str) -> str:
    done = subprocess.run(
        [sys.executable, str(Path(__file__)), where],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    costs: Costs = json.loads(done.stdout)
    columns = list(next(iter(costs.values())))
    title = f"host time of a call on the {where.upper()}, us"
    lines = [f"{title:<34}" + "".join(f"{each:>15}" for each in columns)]
    for name, cost in costs.items():
        lines.append(f"{name:<34}" + "".join(f"{cost[each]:>15.2f}" for each in columns))
    return "\n".join(lines)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cost_of_tier_3(bench_tables: list[str]) -> None:
    bench_tables.append(table("gpu"))


def test_cost_of_operators(bench_tables: list[str]) -> None:
    bench_tables.append(table("cpu"))


if __name__ == "__main__":
    print(json.dumps(on_gpu() if sys.argv[1] == "gpu" else on_cpu()))
