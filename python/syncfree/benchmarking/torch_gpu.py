"""The services of torch for one GPU: streams, cache, memory, graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from syncfree.errors import BenchmarkError

# The cache's replacement policy is not strictly LRU: reading just its size would leave old lines.
FLUSH_FACTOR = 4
CALLS_BEFORE_CAPTURE = 3
_flush_buffers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}


class TorchGpu:
    """A device of `torch.cuda`.

    Args:
        index: The device's number.
        wait_tiers: Tiers of the sync detector to use, in this order, until one names a line.
    """

    def __init__(self, index: int, wait_tiers: Sequence[Any] = (2, "auto")) -> None:
        self.index = index
        self._wait_tiers = wait_tiers

    def describe(self) -> str:
        """The device's name."""
        return torch.cuda.get_device_name(self.index)

    def stream(self) -> int:
        """Handle of the current stream."""
        return torch.cuda.current_stream(self.index).cuda_stream

    def synchronize(self) -> None:
        """Waits for all work of the device."""
        torch.cuda.synchronize(self.index)

    def flush_l2(self) -> None:
        """Enqueues a read of more than the L2 cache holds.

        It reads, because a fill would leave dirty lines, and the call would pay for writing them
        back.
        """
        source, total = self._flush_buffer()
        torch.sum(source, dim=0, out=total)

    def fork(self, streams: Sequence[Any]) -> None:
        """Makes the streams wait for the current one."""
        if streams:
            here = torch.cuda.current_stream(self.index)
            for each in streams:
                each.wait_stream(here)

    def join(self, streams: Sequence[Any]) -> None:
        """Makes the current stream wait for the streams."""
        if streams:
            here = torch.cuda.current_stream(self.index)
            for each in streams:
                here.wait_stream(each)

    def capture(self, call: Callable[..., Any], args: tuple[Any, ...]) -> Callable[[], Any]:
        """Captures a call into a CUDA graph; returns its replay.

        Raises:
            BenchmarkError: The call cannot be captured.
        """
        graph = torch.cuda.CUDAGraph()
        # Autograd and libraries create state at the first call on a stream, which must not happen
        # during the capture.
        side = torch.cuda.Stream(self.index)
        self.fork([side])
        with torch.cuda.stream(side):
            for _ in range(CALLS_BEFORE_CAPTURE):
                call(*args)
        self.join([side])
        try:
            with torch.cuda.graph(graph):
                call(*args)
        except RuntimeError as error:
            raise BenchmarkError(
                f"graph=True: the call cannot be captured into a CUDA graph: {error}. A call that "
                "waits for the GPU never can: syncfree.detect_syncs names the lines"
            ) from error
        # The bound method keeps the graph alive, and with it the pool that its outputs live in.
        replay: Callable[[], Any] = graph.replay
        return replay

    def peak_bytes(self, call: Callable[[], Any]) -> int:
        """Peak memory of a call beyond what was in use before."""
        self.synchronize()
        before = torch.cuda.memory_allocated(self.index)
        torch.cuda.reset_peak_memory_stats(self.index)
        call()
        self.synchronize()
        return max(0, torch.cuda.max_memory_allocated(self.index) - before)

    def device_allocations(self) -> int:
        """How often the allocator has asked the driver for memory so far."""
        return int(torch.cuda.memory_stats(self.index).get("num_device_alloc", 0))

    def waits_of(self, call: Callable[[], Any]) -> str:
        """The lines at which a call makes the host wait; empty if none is seen."""
        return waits_of(call, self._wait_tiers)

    def _flush_buffer(self) -> tuple[torch.Tensor, torch.Tensor]:
        if self.index not in _flush_buffers:
            size = FLUSH_FACTOR * torch.cuda.get_device_properties(self.index).L2_cache_size
            device = torch.device("cuda", self.index)
            source = torch.zeros(max(size, 2**24) // 4, device=device)
            _flush_buffers[self.index] = source, torch.zeros((), device=device)
        return _flush_buffers[self.index]


def waits_of(call: Callable[[], Any], tiers: Sequence[Any]) -> str:
    """The lines at which a call makes the host wait, as the sync detector sees them.

    Tier 2 comes first, because tier 3 takes CUPTI, after which `torch.profiler` sees no GPU events.
    """
    from syncfree.detector import detect_syncs
    from syncfree.detector.places import installed_name

    for tier in tiers:
        with detect_syncs(tier=tier) as report:
            call()
        found = [each for each in report.findings if each.counts]
        if found:
            shown = []
            for each in found[:3]:
                # Result files are read on other machines, so a package's file gets its portable
                # name.
                file = installed_name(each.frame.file) or each.frame.file
                shown.append(f"{file}:{each.frame.line} ({each.event.api}: {each.source})")
            more = f" and {len(found) - 3} lines more" if len(found) > 3 else ""
            return "line " + ", ".join(shown) + more
    return ""
