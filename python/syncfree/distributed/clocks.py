"""Reads a GPU's clock and why it is throttled, if NVIDIA's management library is installed."""

from __future__ import annotations

import statistics
import time
from importlib import import_module
from typing import Any

import torch

from syncfree.timing.nvml import gpu_uuid

_SECONDS_BETWEEN = 0.5
_SAMPLES = 10_000
# Bits of NVML's clock event reasons. Idleness and clocks set by a user are not throttling.
_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "temperature",
    0x40: "temperature",
    0x80: "power brake",
}


class ClockSampler:
    """Samples of one GPU's clock, taken when `sample` is called.

    Without `nvidia-ml-py`, or for a CPU, there are none.

    Args:
        device: the GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._nvml, self._handle = _open(device)
        self._last = 0.0
        self._mhz: list[float] = []
        self._throttled: set[str] = set()

    def sample(self) -> None:
        """Read the clock, at most twice a second."""
        now = time.monotonic()
        if self._handle is None or now - self._last < _SECONDS_BETWEEN:
            return
        self._last = now
        try:
            clock = self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_SM)
            reasons = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)
        except self._nvml.NVMLError:
            self._handle = None  # this driver or GPU does not support it
            return
        if len(self._mhz) < _SAMPLES:
            self._mhz.append(float(clock))
        self._throttled |= {name for bit, name in _REASONS.items() if reasons & bit}

    @property
    def mhz(self) -> float | None:
        """Median of the samples, `None` if there are none."""
        return statistics.median(self._mhz) if self._mhz else None

    @property
    def throttled(self) -> tuple[str, ...]:
        """The reasons for throttling in any sample."""
        return tuple(sorted(self._throttled))


def _open(device: torch.device) -> tuple[Any, Any]:
    if device.type != "cuda":
        return None, None
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return None, None
    try:
        nvml.nvmlInit()
        return nvml, nvml.nvmlDeviceGetHandleByUUID(gpu_uuid(device).encode())
    except nvml.NVMLError:
        return nvml, None
