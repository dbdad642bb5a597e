"""A kernel of ours waits for one ahead that lets it start before its own writes are done.

Kernels of torch never do, so that behind them a missing wait would go unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor
from torchmetrics import Metric

from calls import CALLS, PublicCall
from syncfree.classification import BinaryAccuracy, MulticlassAccuracy, MultilabelAccuracy
from syncfree.image import (
    MultiScaleStructuralSimilarityIndexMeasure,
    PeakSignalNoiseRatio,
    StructuralSimilarityIndexMeasure,
)

pytestmark = pytest.mark.needs_cuda

COPIES_LATE = """
extern "C" __global__ void copies_late(unsigned char* to, const unsigned char* from, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  const long long start = clock64();
  while (clock64() - start < 400000) {}
  for (int i = threadIdx.x; i < bytes; i += blockDim.x) to[i] = from[i];
}
"""
ALIGNMENT = 256
# Fills and copies of torch run between the late copy and our kernel, and wait for it.
BEHIND_TORCH = (
    "ssim-update",
    "ssim-update-map",
    "ssim-update-contrast",
    "ms-ssim-update",
    "ms-ssim-pytorch-msssim-bytes",
)
SAME_FOR_ALL_NOISE = ("ms-ssim-wang",)

LateCopy = Callable[[Tensor, Tensor], None]


@pytest.fixture(scope="module")
def copy_late() -> LateCopy:
    """Copies bytes 0.2 ms after the next kernel of the stream may have started."""
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("no kernel starts early before compute capability 9.0")
    kernel = torch.cuda._compile_kernel(COPIES_LATE, "copies_late")

    def copy(to: Tensor, source: Tensor) -> None:
        kernel((1, 1, 1), (1024, 1, 1), (to, source, to.numel()))

    return copy


def packed(tensors: Iterable[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """One block of bytes, and tensors like those given that lie in it with their values."""
    tensors = [tensor.contiguous() for tensor in tensors]
    sizes = [-(-tensor.nbytes // ALIGNMENT) * ALIGNMENT for tensor in tensors]
    block = torch.zeros(sum(sizes), dtype=torch.uint8, device="cuda")
    views = []
    for tensor, piece in zip(tensors, block.split(sizes), strict=True):
        view = piece[: tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        view.copy_(tensor)
        views.append(view)
    return block, views


def images() -> tuple[Tensor, Tensor]:
    return torch.rand(4, 3, 48, 48, device="cuda"), torch.rand(4, 3, 48, 48, device="cuda")


def classes() -> tuple[Tensor, Tensor]:
    scores = torch.randn(256, 10, device="cuda")
    return scores, torch.randint(0, 10, (256,), device="cuda")


def labels(*shape: int) -> tuple[Tensor, Tensor]:
    return torch.rand(shape, device="cuda"), torch.randint(0, 2, shape, device="cuda")


BATCHES: dict[type[Metric], Callable[[], tuple[Tensor, Tensor]]] = {
    MulticlassAccuracy: classes,
    MultilabelAccuracy: lambda: labels(64, 10),
    BinaryAccuracy: lambda: labels(500),
    PeakSignalNoiseRatio: images,
    StructuralSimilarityIndexMeasure: images,
    MultiScaleStructuralSimilarityIndexMeasure: images,
}


def hold_the_gpu() -> torch.cuda.Event:
    """For about 0.1 s, in which the call is queued right behind the late copy: until the event."""
    torch.cuda._sleep(200_000_000)
    event = torch.cuda.Event()
    event.record()
    return event


@pytest.mark.parametrize(
    "call", [c for c in CALLS if c.name not in BEHIND_TORCH + SAME_FOR_ALL_NOISE], ids=str
)
def test_reads_what_is_written_late(call: PublicCall, copy_late: LateCopy) -> None:
    early = call.inputs("cuda", 1)
    late = call.inputs("cuda", 2)
    want = call.results(*(tensor.cpu() for tensor in late))
    place, (preds, target) = packed(early)
    source, _ = packed(late)
    before, call_before = place.clone(), call.results(preds, target)
    for _ in range(3):
        place.copy_(before)
        held = hold_the_gpu()
        copy_late(place, source)
        got = call.results(preds, target)
        assert not held.query(), "the call came too late to stand behind the copy"
        for value, expected in zip(got, want, strict=True):
            torch.testing.assert_close(value.cpu(), expected, rtol=1e-4, atol=1e-5, equal_nan=True)
    for value, expected in zip(call_before, call.results(*early), strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


def states_in_a_block(metric: Metric) -> Tensor:
    """The metric's states, moved into one block of bytes that nobody else holds parts of.

    A state that somebody holds would be copied before a batch is added, by a kernel of torch.
    """
    names = list(metric.metric_state)
    block, views = packed(getattr(metric, name) for name in names)
    for name in names:
        setattr(metric, name, views.pop(0))
    return block


every_metric = pytest.mark.parametrize(
    "metric",
    [
        MulticlassAccuracy(10, average="micro"),
        MulticlassAccuracy(10, average="macro"),
        MulticlassAccuracy(10, average="macro", top_k=2),
        MultilabelAccuracy(10),
        BinaryAccuracy(),
        PeakSignalNoiseRatio(data_range=1.0),
        StructuralSimilarityIndexMeasure(data_range=1.0),
        MultiScaleStructuralSimilarityIndexMeasure(data_range=1.0, betas=(0.4, 0.6)),
    ],
    ids=lambda metric: type(metric).__name__,
)


@pytest.mark.parametrize("step", ["update", "forward"])
@every_metric
def test_adds_to_states_that_are_written_late(
    metric: Metric, step: str, copy_late: LateCopy
) -> None:
    metric, want = (metric.clone().cuda() for _ in range(2))
    batch = BATCHES[type(metric)]()
    for _ in range(2):
        getattr(want, step)(*batch)
    written, _ = packed(want.metric_state.values())
    place = states_in_a_block(metric)
    held = hold_the_gpu()
    copy_late(place, written)
    getattr(metric, step)(*batch)
    assert not held.query(), "the call came too late to stand behind the copy"
    want.update(*batch)
    for name, state in want.metric_state.items():
        torch.testing.assert_close(getattr(metric, name), state)
    torch.testing.assert_close(metric.compute(), want.compute())


@every_metric
def test_computes_from_states_that_are_written_late(metric: Metric, copy_late: LateCopy) -> None:
    metric, want = (metric.clone().cuda() for _ in range(2))
    batch = BATCHES[type(metric)]()
    for each in (metric, want):
        each.update(*batch)
    expected = want.compute()
    written, _ = packed(want.metric_state.values())
    place = states_in_a_block(metric).zero_()
    held = hold_the_gpu()
    copy_late(place, written)
    value = metric.compute()
    assert not held.query(), "the call came too late to stand behind the copy"
    torch.testing.assert_close(value, expected)
    assert expected != 0
