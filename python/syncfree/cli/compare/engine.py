"""Engines measure batches: on the CPU at once, on a GPU through streams taken in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from syncfree.cli.compare.buffers import BufferPool, Lease, Reuse, Scratch
from syncfree.cli.compare.images import PicturePair
from syncfree.cli.compare.measure import measure
from syncfree.cli.compare.options import CompareOptions, UsageError
from syncfree.cli.compare.stages import COMPUTE, ENQUEUE, READ_BACK, UPLOAD, Stages
from syncfree.distributed.busy import Busy, EventClock, Span
from syncfree.distributed.flight import free_bytes

# Bytes on the GPU per byte of samples: the samples, and float32 copies for luma and maps.
_PLAIN_BYTES, _CONVERTED_BYTES = 2, 12


@dataclass(frozen=True)
class Submitted:
    """A batch under way; `values` and `maps` are on the host and valid once `wait` has returned.

    `values` has one row per metric in `METRICS`; `maps` is None unless maps were asked for. Both
    are in memory that `release` gives to later batches.
    """

    pictures: Sequence[PicturePair]
    values: Tensor
    maps: Tensor | None
    done: torch.cuda.Event | None = None
    landed: Callable[[], None] = lambda: None
    memory: tuple[Lease, ...] = ()

    def wait(self) -> None:
        """Wait for this batch alone, count its time, and give the memory of its pictures back."""
        if self.done is not None:
            self.done.synchronize()
        self.landed()
        for picture in self.pictures:
            picture.memory.release()

    def release(self) -> None:
        """Give the memory of the results back, once they have been read."""
        for lease in self.memory:
            lease.release()


class Engine(Protocol):
    """Measures batches on one device.

    `busy` counts the time that the device worked, `stages` that of each stage if they are timed.
    `batch_bytes` limits the samples of one batch if the device's memory does. Pictures lie in
    `buffers`; `scratch` counts the reuse of other memory. `streams` is 0 without a GPU.
    """

    device: torch.device
    name: str
    buffers: BufferPool
    scratch: Reuse
    streams: int
    busy: Busy
    stages: Stages
    batch_bytes: int | None

    def submit(self, pictures: Sequence[PicturePair]) -> Submitted:
        """Start measuring a batch of one layout."""
        ...


def find_device(wanted: str) -> torch.device:
    """The device for `auto`, `cpu`, `cuda` or `cuda:N`.

    Raises:
        UsageError: not one of these, or no such GPU.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "auto":
        return torch.device("cuda", torch.cuda.current_device()) if gpus else torch.device("cpu")
    if wanted == "cpu":
        return torch.device("cpu")
    kind, _, number = wanted.partition(":")
    if kind != "cuda" or (wanted != "cuda" and not number.isdecimal()):
        raise UsageError(f"device is auto, cpu, cuda or cuda:N; got {wanted!r}")
    if not gpus:
        raise UsageError(f"device {wanted!r} asked for, but this PyTorch sees no GPU; try cpu")
    index = int(number) if number else torch.cuda.current_device()
    if index >= gpus:
        raise UsageError(f"device {wanted!r} asked for, but there are {gpus} GPUs, from cuda:0")
    return torch.device("cuda", index)


def make_engine(options: CompareOptions) -> Engine:
    """The engine for the device that `options` name.

    Raises:
        UsageError: no such device.
    """
    device = find_device(options.device)
    return CudaEngine(device, options) if device.type == "cuda" else CpuEngine(options)


class CpuEngine:
    """Measures at once, with the threads of the CPU kernels."""

    device = torch.device("cpu")
    name = "CPU"
    streams = 0
    batch_bytes: int | None = None

    def __init__(self, options: CompareOptions) -> None:
        self.buffers = BufferPool(pinned=False)
        self.scratch = Reuse("memory of batches")
        self.busy = Busy()
        self.stages = Stages()
        self._options = options
        self._samples = Scratch(self.device, self.scratch)

    def submit(self, pictures: Sequence[PicturePair]) -> Submitted:
        """Measure a batch."""
        with self.busy.on_host(), self.stages.on_device(COMPUTE):
            samples = self._samples.view(_shape(pictures), pictures[0].reference.dtype)
            _gather(samples, pictures)
            found = measure(samples[0], samples[1], pictures[0].layout, self._options)
        return Submitted(pictures, *found, landed=self.stages.landed)


class CudaEngine:
    """Uploads, measures and reads back on one stream per batch.

    Batches take the streams in turn, so that one is copied while another is measured.
    """

    def __init__(self, device: torch.device, options: CompareOptions) -> None:
        self.device = device
        self.name = torch.cuda.get_device_name(device)
        self.streams = options.streams
        self._options = options
        self.scratch = Reuse("device memory of batches")
        # Created before any decoding thread pins memory: pinning needs a context, and would
        # otherwise open one on GPU 0 whatever the device.
        self._lanes = deque(_Lane(device, self.scratch) for _ in range(options.streams))
        self.buffers = BufferPool(pinned=True)
        self.busy = Busy()
        self.stages = Stages()
        self._clock = EventClock(self._lanes[0].stream, self.busy)
        converts = options.y_channel or options.maps is not None
        per_byte = _CONVERTED_BYTES if converts else _PLAIN_BYTES
        # Half of the memory is left to others.
        free = free_bytes(device) or 0
        self.batch_bytes: int | None = free // (2 * options.streams * per_byte)

    def submit(self, pictures: Sequence[PicturePair]) -> Submitted:
        """Queue a batch: upload, measure and read back, in stream order."""
        lane = self._lanes[0]
        self._lanes.rotate(-1)
        try:
            with (
                self.stages.on_host(ENQUEUE),
                torch.cuda.device(self.device),
                torch.cuda.stream(lane.stream),
            ):
                return self._queue(lane, pictures)
        except torch.OutOfMemoryError:
            for each in self._lanes:
                each.samples.drop()
            raise

    def _queue(self, lane: _Lane, pictures: Sequence[PicturePair]) -> Submitted:
        upload = Span(lane.stream)
        with self.stages.on_device(UPLOAD, "h2d", sum(each.bytes for each in pictures)):
            samples = lane.samples.view(_shape(pictures), pictures[0].reference.dtype)
            _gather(samples, pictures)
        upload.close()
        work = Span(lane.stream)
        with self.stages.on_device(COMPUTE):
            found = measure(samples[0], samples[1], pictures[0].layout, self._options)
        results = [each for each in found if each is not None]
        leases = [self.buffers.take(each.nbytes) for each in results]
        with self.stages.on_device(READ_BACK, "d2h", sum(each.nbytes for each in results)):
            hosts = [
                lease.view(each.shape, each.dtype).copy_(each, non_blocking=True)
                for each, lease in zip(results, leases, strict=True)
            ]
        work.close()

        def landed() -> None:
            self._clock.add(upload, transfer=True)
            self._clock.add(work)
            self.stages.landed()

        maps = hosts[1] if len(hosts) > 1 else None
        return Submitted(pictures, hosts[0], maps, work.end, landed, tuple(leases))


class _Lane:
    """A stream of a `CudaEngine`, and the memory that its batches overwrite one after the other."""

    def __init__(self, device: torch.device, reuse: Reuse) -> None:
        self.stream = torch.cuda.Stream(device)
        self.samples = Scratch(device, reuse)


def _shape(pictures: Sequence[PicturePair]) -> tuple[int, ...]:
    return (2, len(pictures), *pictures[0].reference.shape)


def _gather(samples: Tensor, pictures: Sequence[PicturePair]) -> None:
    sources = [each.reference for each in pictures] + [each.test for each in pictures]
    # One call, since after each call the host queues for the GIL behind all decoding threads.
    torch._foreach_copy_(samples.flatten(0, 1).unbind(), sources, non_blocking=True)
