"""A restoration loop that is evaluated as it runs: a small network, PSNR and SSIM.

Timed by the host's clock, such a loop makes metrics look slow that merely wait for the network. So
the same loop without metrics is measured too, and the difference is what the metrics add.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from syncfree.benchmarking.suites.peers import is_there
from syncfree.benchmarking.suites.workload import F32, Call, Makers, Workload, images, size_name
from syncfree.errors import MissingExtraError

STEPS = 8
CHANNELS = 32
ON_GPU = ((4, 3, 256, 256), (8, 3, 512, 512))
ON_CPU = (1, 3, 96, 96)


def network(device: str) -> nn.Module:
    """Three convolutions; the loop adds the skip connection, as in small restoration networks."""
    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Conv2d(3, CHANNELS, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(CHANNELS, 3, 3, padding=1),
    )
    return layers.eval().to(device)


def loop(model: nn.Module, noisy: Tensor, clean: Tensor, metrics: Any) -> Call:
    """The steps of an epoch and its values; without metrics, the last restored images."""

    @torch.no_grad()
    def run() -> object:
        restored = noisy
        for _ in range(STEPS):
            restored = noisy + model(noisy)
            if metrics is not None:
                metrics.update(restored, clean)
        if metrics is None:
            return restored
        values = metrics.compute()
        metrics.reset()
        return values

    return run


def workload(shape: tuple[int, ...], device: str) -> Workload:
    """The loop with syncfree's metrics, on the current and on a side stream, and TorchMetrics'."""
    import torchmetrics

    import syncfree

    clean, noisy = images(shape, F32, device)
    model = network(device)

    def collection(library: Any) -> Any:
        metrics = [
            library.image.PeakSignalNoiseRatio(data_range=1.0),
            library.image.StructuralSimilarityIndexMeasure(data_range=1.0),
        ]
        return library.MetricCollection(metrics).to(device)

    contenders: dict[str, Call] = {
        name: loop(model, noisy, clean, metrics)
        for name, metrics in (
            ("syncfree", collection(syncfree)),
            ("syncfree side stream", syncfree.on_side_stream(collection(syncfree))),
            ("syncfree no metrics", None),
            ("torchmetrics", collection(torchmetrics)),
        )
    }
    title = f"restoration loop of {STEPS}, {size_name(shape, F32)}"
    return Workload(title, device, STEPS * 2 * clean.nbytes, contenders)


def makers(device: str) -> Makers:
    """The workloads of this suite.

    Raises:
        MissingExtraError: TorchMetrics, whose classes syncfree's derive from, is not installed.
    """
    if not is_there("torchmetrics"):
        raise MissingExtraError("The suite `restoration`", "torchmetrics")
    for shape in (ON_CPU,) if device == "cpu" else ON_GPU:
        yield f"restoration-{size_name(shape, F32)}", partial(workload, shape, device)
