"""What `compute()` costs in several processes: syncfree beside TorchMetrics, in turn, in one run.

`python benchmarks/distributed_compute.py --processes 2 [--json FILE]` starts the processes itself,
with NCCL and a GPU for each if there are GPUs, otherwise with gloo. Host times are medians of
single calls; whether a call waits is found out behind a spinning kernel on the GPU.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torchmetrics

import syncfree

CALLS = 30
SPIN_CYCLES = 200_000_000  # 0.1 s: longer than any call here takes the host
ON_GPU = torch.cuda.is_available()


def metrics(library: Any) -> dict[str, Callable[[], Any]]:
    """Makers of the metrics; both libraries have the same classes and arguments."""
    classification, image = library.classification, library.image

    def collection() -> Any:
        return library.MetricCollection(
            {
                "micro": classification.MulticlassAccuracy(1000, average="micro"),
                "macro": classification.MulticlassAccuracy(1000),
                "top-5": classification.MulticlassAccuracy(1000, average="micro", top_k=5),
                "F1": torchmetrics.classification.MulticlassF1Score(1000),
            }
        )

    return {
        "MulticlassAccuracy, 1000 classes": lambda: classification.MulticlassAccuracy(1000),
        "MulticlassAccuracy, samplewise": lambda: classification.MulticlassAccuracy(
            1000, multidim_average="samplewise"
        ),
        "PeakSignalNoiseRatio": lambda: image.PeakSignalNoiseRatio(data_range=1.0),
        "StructuralSimilarityIndexMeasure": lambda: image.StructuralSimilarityIndexMeasure(
            data_range=1.0
        ),
        "MetricCollection of 4": collection,
    }


def batch(name: str, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    if "Image" in name or "Signal" in name or "Structural" in name:
        x = torch.rand(4, 3, 64, 64, device=device)
        return x, (x + 0.1).clamp(max=1)
    extra = (2,) if "samplewise" in name else ()
    scores = torch.randn(64, 1000, *extra, device=device)
    return scores, torch.randint(0, 1000, (64, *extra), device=device)


def forget_value(metric: Any) -> None:
    """Clears the cached value, which `compute` would return otherwise."""
    for one in metric.values() if isinstance(metric, torch.nn.ModuleDict) else [metric]:
        one._computed = None


def host_us(metric: Any) -> float:
    """The time until the call returns, with idle GPUs and processes that begin together."""
    forget_value(metric)
    dist.barrier()
    if ON_GPU:
        torch.cuda.synchronize()
    start = time.perf_counter()
    metric.compute()
    taken = (time.perf_counter() - start) * 1e6
    if ON_GPU:
        torch.cuda.synchronize()
    return taken


def waits(metric: Any) -> bool | None:
    """Whether the call returns only after the work queued on the GPU before it is done."""
    if not ON_GPU:
        return None
    forget_value(metric)
    torch.cuda.synchronize()
    torch.cuda._sleep(SPIN_CYCLES)
    spun = torch.cuda.Event()
    spun.record()
    metric.compute()
    waited = spun.query()
    torch.cuda.synchronize()
    return waited


def measure(rank: int, world: int, rendezvous: str, file: str) -> None:
    """The measurement in one process; rank 0 writes the rows."""
    device = torch.device("cuda", rank) if ON_GPU else torch.device("cpu")
    if ON_GPU:
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if ON_GPU else "gloo",
        f"file://{rendezvous}",
        rank=rank,
        world_size=world,
        device_id=device if ON_GPU else None,
    )
    rows = []
    libraries = {"syncfree": syncfree, "torchmetrics": torchmetrics}
    for name in metrics(syncfree):
        torch.manual_seed(rank)
        there = {
            library: metrics(module)[name]().to(device) for library, module in libraries.items()
        }
        data = batch(name, device)
        for metric in there.values():
            metric.update(*data)
            for _ in range(3):
                host_us(metric)
        times: dict[str, list[float]] = {library: [] for library in there}
        for _ in range(CALLS):
            for library, metric in there.items():
                times[library].append(host_us(metric))
        for library, metric in there.items():
            rows.append(
                {
                    "metric": name,
                    "contender": library,
                    "host_us": statistics.median(times[library]),
                    "waits": waits(metric),
                }
            )
    if rank == 0:
        Path(file).write_text(json.dumps(rows))
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the table with hardware and versions")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows"
        arguments = (given.processes, str(Path(folder) / "rendezvous"), str(file))
        mp.spawn(measure, arguments, nprocs=given.processes)
        rows = json.loads(file.read_text())
    print(f"{'compute() of':<36} {'contender':<14} {'host us':>9} {'waits':>6}")
    for row in rows:
        print(
            f"{row['metric']:<36} {row['contender']:<14} {row['host_us']:>9.0f} {row['waits']!s:>6}"
        )
    if given.json is not None:
        facts = {
            "date": datetime.date.today().isoformat(),
            "processes": given.processes,
            "backend": "nccl" if ON_GPU else "gloo",
            "gpu": torch.cuda.get_device_name() if ON_GPU else "none",
            "versions": {
                "torch": torch.__version__,
                "torchmetrics": torchmetrics.__version__,
                "syncfree": syncfree.__version__,
            },
            "rows": rows,
        }
        given.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
