"""A kernel of ours waits for one ahead that lets it start before its own writes are done.

Kernels of torch never do, so that behind them a missing wait would go unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor

from calls import CALLS, PublicCall
from syncfree.classification import MulticlassAccuracy
from syncfree.image import PeakSignalNoiseRatio

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

LateCopy = Callable[[Tensor, Tensor], None]


@pytest.fixture(scope="module")
def copy_late() -> LateCopy:
    """Copies bytes 0.2 ms after the next kernel of the stream may have started."""
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


def hold_the_gpu() -> None:
    """For about 10 ms, in which the call is queued right behind the late copy."""
    torch.cuda._sleep(20_000_000)


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_reads_what_is_written_late(call: PublicCall, copy_late: LateCopy) -> None:
    early = call.inputs("cuda", 1)
    late = call.inputs("cuda", 2)
    want = call.results(*(tensor.cpu() for tensor in late))
    place, (preds, target) = packed(early)
    source, _ = packed(late)
    before, call_before = place.clone(), call.results(preds, target)
    for _ in range(3):
        place.copy_(before)
        hold_the_gpu()
        copy_late(place, source)
        got = call.results(preds, target)
        for value, expected in zip(got, want, strict=True):
            torch.testing.assert_close(value.cpu(), expected, rtol=1e-4, atol=1e-5, equal_nan=True)
    for value, expected in zip(call_before, call.results(*early), strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_adds_to_states_that_are_written_late(average: str, copy_late: LateCopy) -> None:
    scores = torch.randn(256, 10, device="cuda")
    target = torch.randint(0, 10, (256,), device="cuda")
    metric, want = (MulticlassAccuracy(10, average=average).cuda() for _ in range(2))
    names = ("tp", "fp", "tn", "fn")
    for _ in range(3):
        want.update(scores, target)
    metric.update(scores, target)
    place, states = packed(getattr(metric, name) for name in names)
    metric.update(scores, target)
    source, _ = packed(getattr(metric, name) for name in names)
    for name, state in zip(names, states, strict=True):
        setattr(metric, name, state)
    hold_the_gpu()
    copy_late(place, source)
    metric.update(scores, target)
    for name in names:
        assert torch.equal(getattr(metric, name), getattr(want, name))
    assert torch.equal(metric.compute(), want.compute())


def test_adds_to_errors_that_are_written_late(copy_late: LateCopy) -> None:
    images = torch.rand(4, 3, 32, 32, device="cuda")
    metric, want = (PeakSignalNoiseRatio(data_range=1.0).cuda() for _ in range(2))
    names = ("sum_squared_error", "total")
    for each in (metric, want):
        each.update(images, images * 0.5)
        each.update(images, images * 0.9)
    source, _ = packed(getattr(want, name) for name in names)
    metric.reset()
    place, states = packed(getattr(metric, name) for name in names)
    for name, state in zip(names, states, strict=True):
        setattr(metric, name, state)
    hold_the_gpu()
    copy_late(place, source)
    metric.update(images, images * 0.3)
    want.update(images, images * 0.3)
    assert torch.equal(metric.total, want.total)
    torch.testing.assert_close(metric.sum_squared_error, want.sum_squared_error)
