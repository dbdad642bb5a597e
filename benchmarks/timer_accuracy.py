"""How far the event timer is from CUPTI: run `python benchmarks/timer_accuracy.py` with a GPU.

Kernels that spin for 2 us to 10 ms are timed by a region each, behind a gate, so that the time
contains no launch. CUPTI measures them on the GPU itself, through `torch.profiler`. A region may
differ by 2 us or by 2 %, whichever is more. It also prints the time of two events by themselves,
which the timer subtracts, and the time of an empty region, outside of a CUDA graph and inside of
one, where nothing is subtracted.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from syncfree.timing.statistics import median

SPINS_US = (2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
GATE_US = 500.0
REPEATS = 20


@dataclass(frozen=True)
class Row:
    """Kernels of one length. Times are microseconds.

    Args:
        kernel_us: median by CUPTI.
        region_us: median of the regions around the kernels.
        worst_us: largest difference of a region from its kernel; negative if it is shorter.
        beyond: how many regions differ by more than is allowed.
        n: the number of regions.
    """

    kernel_us: float
    region_us: float
    worst_us: float
    beyond: int
    n: int


def compared(regions: Sequence[float], kernels: Sequence[float]) -> Row:
    """Compares regions with the kernels in them.

    Raises:
        ValueError: The numbers of regions and kernels differ.
    """
    off = [region - kernel for region, kernel in zip(regions, kernels, strict=True)]
    allowed = [max(2.0, 0.02 * kernel) for kernel in kernels]
    return Row(
        kernel_us=median(kernels),
        region_us=median(regions),
        worst_us=max(off, key=abs),
        beyond=sum(abs(each) > most for each, most in zip(off, allowed, strict=True)),
        n=len(off),
    )


@dataclass(frozen=True)
class Empty:
    """What is measured without work. Times are microseconds.

    Args:
        bracket_us: the time that the timer subtracts; None if it could not be measured.
        region_us: median of empty regions.
        captured_us: median of empty regions in a CUDA graph.
    """

    bracket_us: float | None
    region_us: float
    captured_us: float


def table(rows: Sequence[Row], empty: Empty) -> str:
    """A line for each length."""
    lines = [f"{'CUPTI us':>10} {'region us':>10} {'worst us':>9} {'beyond 2 us or 2 %':>19}"]
    lines += [
        f"{row.kernel_us:10.2f} {row.region_us:10.2f} {row.worst_us:+9.2f} "
        f"{f'{row.beyond} of {row.n}':>19}"
        for row in rows
    ]
    off = "nothing" if empty.bracket_us is None else f"{empty.bracket_us:.2f} us"
    return "\n".join(
        [
            *lines,
            f"taken off each region, for its two events: {off}",
            f"a region with nothing in it: {empty.region_us:.2f} us",
            f"the same in a CUDA graph, whole: {empty.captured_us:.2f} us",
        ]
    )


def measure() -> tuple[list[Row], Empty]:
    """The rows, and the times of empty regions."""
    import syncfree
    from syncfree import _runtime

    timer = syncfree.EventTimer(stamp_every=0, history=len(SPINS_US) * REPEATS)
    stream = torch.cuda.current_stream().cuda_stream

    def timed(name: str, spin_us: float | None) -> None:
        torch.cuda.synchronize()
        _runtime.spin(stream, GATE_US)
        with timer.region(name):
            if spin_us is not None:
                _runtime.spin(stream, spin_us)

    for _ in range(REPEATS):
        timed("empty", None)
    timer.wait()
    captured_us = captured_empty_us()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for spin_us in SPINS_US:
            for _ in range(REPEATS):
                timed("spin", spin_us)
        torch.cuda.synchronize()
    samples = timer.samples()
    regions = [each.gpu_us for each in samples if each.name == "spin"]
    spins = sorted(
        (event.time_range.start, event.time_range.elapsed_us())
        for event in profile.events()
        if event.device_type == torch.autograd.DeviceType.CUDA and "syncfree_spin" in event.name
    )
    kernels = [us for _, us in spins[1::2]]  # each comes after its gate
    if not len(spins) / 2 == len(kernels) == len(regions) == len(SPINS_US) * REPEATS:
        raise RuntimeError(f"{len(regions)} regions, but CUPTI saw {len(spins)} of their kernels")
    rows = [
        compared(regions[i : i + REPEATS], kernels[i : i + REPEATS])
        for i in range(0, len(regions), REPEATS)
    ]
    (bracket_us,) = timer.json()["bracket_us"].values()
    empty_us = median([each.gpu_us for each in samples if each.name == "empty"])
    return rows, Empty(bracket_us, empty_us, captured_us)


def captured_empty_us() -> float:
    """The time of an empty region, behind a spin in the same graph."""
    import syncfree
    from syncfree import _runtime

    timer, graph = syncfree.EventTimer(stamp_every=0), torch.cuda.CUDAGraph()
    x = torch.zeros(8, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        x.add_(1)
        _runtime.spin(torch.cuda.current_stream().cuda_stream, 50.0)
        with timer.region("captured"):
            pass
        x.add_(1)
    for _ in range(REPEATS):
        graph.replay()
        torch.cuda.synchronize()
        timer.poll()
    return median([each.gpu_us for each in timer.samples()])


def main() -> None:
    """Print the rows, and write them if requested."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this needs a GPU: torch sees none")
    rows, empty = measure()
    gpu = torch.cuda.get_device_name()
    print(f"{gpu}\n{table(rows, empty)}")
    if arguments.json:
        document = {
            "gpu": gpu,
            "torch": torch.__version__,
            "bracket_us": empty.bracket_us,
            "empty_us": empty.region_us,
            "captured_empty_us": empty.captured_us,
            "rows": [asdict(row) for row in rows],
        }
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
