"""Reads clock, power, temperature and throttle reasons during a run. Never changes a setting."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

PERIOD_S = 0.02

# nvmlClocksEventReasons of nvml.h, in words. Idle and application clocks are settings, not events.
REASONS = {
    0x004: "software power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "hardware power brake",
}
# The hardware intervenes: a sample taken meanwhile says nothing about the function. A power cap is
# normal for sustained work on a healthy machine, so it is reported and the sample is kept.
FAULTS = 0x008 | 0x020 | 0x040 | 0x080


@dataclass(frozen=True)
class Reading:
    """A reading of NVML at one moment; None for values that this GPU does not report.

    Args:
        megahertz: Clock of the multiprocessors.
        watts: Power draw.
        celsius: Temperature of the chip.
        reasons: Bits of nvmlClocksEventReasons.
    """

    megahertz: float | None = None
    watts: float | None = None
    celsius: float | None = None
    reasons: int = 0


def reasons_in_words(bits: int) -> list[str]:
    """Names of clock event reasons, without those that are settings.

    Example:
        >>> from syncfree.timing.nvml import reasons_in_words
        >>> reasons_in_words(0x001 | 0x004 | 0x040)
        ['software power cap', 'hardware thermal slowdown']
    """
    return [name for bit, name in REASONS.items() if bits & bit]


def gpu_uuid(device: int | torch.device) -> str:
    """A GPU's UUID as NVML writes it. Indices differ: NVML counts all GPUs, torch visible ones."""
    import torch

    uuid = str(torch.cuda.get_device_properties(device).uuid)
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


class Monitor:
    """A thread that keeps the newest :class:`Reading` of one GPU, while a ``with`` block runs.

    If NVML cannot be read, `latest` is always None and `note` says why.

    Args:
        uuid: The GPU's UUID as NVML writes it (``"GPU-..."``); None for no GPU at all.
        period: Seconds between readings.
        keep: At most how many readings are kept.

    Example:
        >>> from syncfree.timing.nvml import Monitor
        >>> with Monitor(None) as monitor:
        ...     print(monitor.latest())
        None
    """

    def __init__(self, uuid: str | None, period: float = PERIOD_S, keep: int = 1) -> None:
        self.note = ""
        self._uuid = uuid
        self._period = period
        self._kept: deque[tuple[float, Reading]] = deque(maxlen=keep)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._nvml: Any = None
        self._handle: Any = None

    def latest(self) -> Reading | None:
        """The newest reading, which is at most about one period old."""
        with self._lock:
            return self._kept[-1][1] if self._kept else None

    def readings(self) -> list[tuple[float, Reading]]:
        """The newest readings, oldest first, with their times in seconds of `time.perf_counter`."""
        with self._lock:
            return list(self._kept)

    def start(self) -> Monitor:
        """Begins to read, as entering the block does."""
        if self._uuid is None:
            return self
        try:
            self._nvml = import_module("pynvml")
        except ImportError:
            self.note = (
                "no clock, power and throttle readings: nvidia-ml-py is not installed "
                "(pip install 'syncfree[bench]')"
            )
            return self
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            self.note = f"no clock, power and throttle readings: NVML says {error}"
            self._nvml = None
            return self
        try:
            self._handle = self._nvml.nvmlDeviceGetHandleByUUID(self._uuid.encode())
        except self._nvml.NVMLError as error:
            self.note = f"no clock, power and throttle readings of {self._uuid}: NVML says {error}"
            self._shut_down()
            return self
        self._look()
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="syncfree-nvml", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ends the thread, as leaving the block does. The readings are kept."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stop.set()
            # The owner may be garbage-collected in this very thread, which cannot join itself.
            if thread is not threading.current_thread():
                thread.join()

    def __enter__(self) -> Monitor:
        return self.start()

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._stop.wait(self._period):
            self._look()
        self._shut_down()

    def _look(self) -> None:
        reading = self._read()
        with self._lock:
            self._kept.append((time.perf_counter(), reading))

    def _read(self) -> Reading:
        nvml, handle = self._nvml, self._handle
        # Older versions of the package have only the older name.
        reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or getattr(
            nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None
        )
        milliwatts = self._ask(nvml.nvmlDeviceGetPowerUsage, handle)
        return Reading(
            megahertz=self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            watts=None if milliwatts is None else milliwatts / 1e3,
            celsius=self._ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            reasons=int(self._ask(reasons, handle) or 0) if reasons is not None else 0,
        )

    def _ask(self, question: Any, *arguments: Any) -> float | None:
        try:
            return float(question(*arguments))
        except self._nvml.NVMLError:  # this GPU does not report it, as with MIG
            return None

    def _shut_down(self) -> None:
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError as error:
            self.note = f"NVML did not shut down: {error}"
        self._nvml = None
