"""What an open region of tier 3 costs calls of a program: `make bench` prints it.

Measured in a process of its own: torch.profiler, with which other benchmarks count launches, sees
no GPU events after tier 3 has listened.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch


def host_time(call: Callable[[], object], calls: int, rounds: int = 7) -> float:
    """Microseconds of host time a call, back to back, best of several rounds."""
    best = float("inf")
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - start) / calls * 1e6)
    torch.cuda.synchronize()
    return best


def measure() -> dict[str, dict[str, float]]:
    """Microseconds of host time a call, with and without a region."""
    import syncfree

    x = torch.ones(64, device="cuda")
    event = torch.cuda.Event()
    event.record()
    pinned = torch.ones(64).pin_memory()
    calls = {
        "launch": lambda: x.add_(1),
        "event query": lambda: event.query(),
        "copy to pinned memory": lambda: pinned.copy_(x, non_blocking=True),
        "item": lambda: x[0].item(),
    }
    costs: dict[str, dict[str, float]] = {name: {} for name in calls}
    # In turn, so that a clock that changes meanwhile is in both.
    for _ in range(3):
        for name, call in calls.items():
            plain = host_time(call, calls=500)
            with syncfree.detect_syncs(tier=3):
                watched = host_time(call, calls=500)
            best = costs[name]
            best["plain_us"] = min(plain, best.get("plain_us", plain))
            best["watched_us"] = min(watched, best.get("watched_us", watched))
    return costs


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cost_of_tier_3(request: pytest.FixtureRequest) -> None:
    done = subprocess.run(
        [sys.executable, str(Path(__file__))],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    reporter.write_line(f"\n{'host time of a call, us':<28} {'no region':>10} {'tier 3':>10}")
    for name, cost in json.loads(done.stdout).items():
        reporter.write_line(f"{name:<28} {cost['plain_us']:>10.2f} {cost['watched_us']:>10.2f}")


if __name__ == "__main__":
    print(json.dumps(measure()))
