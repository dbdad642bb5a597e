"""What a timed region costs the host: run `python benchmarks/region_cost.py`, on a quiet machine.

A GPU takes some 3 us for the two events of a region, longer than the host takes to record them. So
regions in an endless loop soon wait for a place in the driver's queue, and the GPU's time is
measured. Here they come in bursts that fit into the queue, and the GPU is drained before each, so
the host alone is measured, as in a training step, whose regions have work between their events.

The bursts of all contenders take turns, and so do two streams: the legacy one and one of torch's
pool.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch

from syncfree.benchmarking.suites.timer import REGIONS, makers
from syncfree.benchmarking.suites.workload import Call
from syncfree.timing.statistics import median

BURSTS = 300


@dataclass(frozen=True)
class Cost:
    """Microseconds of the host for one region, or for one of what a contender's burst consists of.

    Args:
        stream: the stream's name.
        name: the contender's name.
        median_us: the median of all bursts.
        least_us: the shortest of all bursts.
    """

    stream: str
    name: str
    median_us: float
    least_us: float


Enter = Callable[[], AbstractContextManager[object]]


def costs(
    streams: Mapping[str, Enter], bursts: Mapping[str, Call], drain: Callable[[], None]
) -> list[Cost]:
    """Bursts in turn, on one stream and then the next; the first two of each do not count."""
    taken: dict[tuple[str, str], list[float]] = {(s, name): [] for s in streams for name in bursts}
    for turn in range(BURSTS + 2):
        for stream, enter in streams.items():
            with enter():
                for name, burst in bursts.items():
                    drain()
                    start = time.perf_counter_ns()
                    burst()
                    us = (time.perf_counter_ns() - start) / 1e3 / REGIONS
                    if turn >= 2:
                        taken[stream, name].append(us)
    return [Cost(stream, name, median(us), min(us)) for (stream, name), us in taken.items()]


def table(rows: list[Cost]) -> str:
    """A line for each contender, with the ratio to the first of its stream."""
    first = {row.stream: row for row in reversed(rows)}
    lines = [f"{'stream':>8}  {'':26} {'median us':>10} {'least us':>9} {'over ours':>10}"]
    for row in rows:
        ratio = row.median_us / first[row.stream].median_us
        times = f"{row.median_us:10.2f} {row.least_us:9.2f}"
        lines.append(f"{row.stream:>8}  {row.name:26} {times} {ratio:9.2f}x")
    return "\n".join(lines)


def contenders(device: str) -> Mapping[str, Call]:
    """The contenders of `make bench`, syncfree first; without clock stamps (one region in 64)."""
    ((_, make),) = makers(device)
    return make().contenders


def measure(device: str) -> list[Cost]:
    """The costs on both streams of a GPU, or on the CPU."""
    if device == "cpu":
        return costs({"none": nullcontext}, contenders(device), lambda: None)
    streams = {"legacy": torch.cuda.default_stream(), "pool": torch.cuda.Stream()}
    enter = {name: partial(torch.cuda.stream, stream) for name, stream in streams.items()}
    return costs(enter, contenders(device), torch.cuda.synchronize)


def main() -> None:
    """Print the rows, and write them if requested."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch sees no GPU: pass --device cpu for the cost of a region without one")
    rows = measure(arguments.device)
    name = torch.cuda.get_device_name() if arguments.device == "cuda" else "CPU"
    print(f"{name}\n{table(rows)}")
    if arguments.json:
        document = {
            "device": name,
            "torch": torch.__version__,
            "burst": REGIONS,
            "rows": [asdict(row) for row in rows],
        }
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
