"""Where batches are measured: on the CPU at once, on a GPU through two streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from syncfree.cli.compare.images import PicturePair
from syncfree.cli.compare.measure import measure
from syncfree.cli.compare.options import CompareOptions, UsageError
from syncfree.distributed.busy import Busy, EventClock, Span
from syncfree.distributed.flight import BATCHES_IN_FLIGHT, free_bytes

# Bytes on the GPU per byte of samples: the samples, and float32 copies for luma and maps.
_PLAIN_BYTES, _CONVERTED_BYTES = 2, 12


@dataclass(frozen=True)
class Submitted:
    """A batch under way; `values` and `maps` are on the host and valid once `wait` has returned.

    `values` has one row per metric in `METRICS`; `maps` is None unless maps were asked for.
    """

    pictures: Sequence[PicturePair]
    values: Tensor
    maps: Tensor | None
    done: torch.cuda.Event | None = None
    landed: Callable[[], None] = lambda: None

    def wait(self) -> None:
        """Wait for this batch alone, and count the time that it took."""
        if self.done is not None:
            self.done.synchronize()
        self.landed()


class Engine(Protocol):
    """Measures batches on one device.

    `busy` counts the time that it took; `batch_bytes` bounds the samples of one batch, where the
    device's memory does.
    """

    device: torch.device
    name: str
    pinned: bool
    busy: Busy
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
    pinned = False
    batch_bytes: int | None = None

    def __init__(self, options: CompareOptions) -> None:
        self.busy = Busy()
        self._options = options

    def submit(self, pictures: Sequence[PicturePair]) -> Submitted:
        """Measure a batch."""
        with self.busy.on_host():
            reference = torch.stack([picture.reference for picture in pictures])
            test = torch.stack([picture.test for picture in pictures])
            found = measure(reference, test, pictures[0].layout, self._options)
        return Submitted(pictures, *found)


class CudaEngine:
    """Copies on one stream and measures on another, so that both go on at once."""

    pinned = True

    def __init__(self, device: torch.device, options: CompareOptions) -> None:
        self.device = device
        self.name = torch.cuda.get_device_name(device)
        self._options = options
        # Created before any decoding thread pins memory: pinning needs a context, and would
        # otherwise open one on GPU 0 whatever the device.
        self._upload = torch.cuda.Stream(device)
        self._compute = torch.cuda.Stream(device)
        self.busy = Busy()
        self._clock = EventClock(self._compute, self.busy)
        converts = options.y_channel or options.maps is not None
        per_byte = _CONVERTED_BYTES if converts else _PLAIN_BYTES
        # One more batch than wait is being submitted; half of the memory is left to others.
        free = free_bytes(device) or 0
        self.batch_bytes: int | None = free // (2 * (BATCHES_IN_FLIGHT + 1) * per_byte)

    def submit(self, pictures: Sequence[PicturePair]) -> Submitted:
        """Queue a batch: upload, measure and read back, in stream order."""
        first = pictures[0].reference
        with torch.cuda.device(self.device):
            with torch.cuda.stream(self._upload):
                upload = Span(self._upload)
                shape = (2, len(pictures), *first.shape)
                samples = torch.empty(shape, dtype=first.dtype, device=self.device)
                for slot, picture in enumerate(pictures):
                    samples[0, slot].copy_(picture.reference, non_blocking=True)
                    samples[1, slot].copy_(picture.test, non_blocking=True)
                upload.close()
            self._compute.wait_stream(self._upload)
            with torch.cuda.stream(self._compute):
                compute = Span(self._compute)
                # The allocator must not hand this memory to the next upload while it is read here.
                samples.record_stream(self._compute)
                values, maps = measure(samples[0], samples[1], pictures[0].layout, self._options)
                values_host = _read_back(values)
                maps_host = None if maps is None else _read_back(maps)
                compute.close()

        def landed() -> None:
            self._clock.add(upload, transfer=True)
            self._clock.add(compute)

        return Submitted(pictures, values_host, maps_host, compute.end, landed)


def _read_back(values: Tensor) -> Tensor:
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    return host.copy_(values, non_blocking=True)
