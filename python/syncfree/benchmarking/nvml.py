"""Reads clock, power, temperature and throttle reasons beside a run. Never changes a setting."""

from __future__ import annotations

import threading
from importlib import import_module
from types import TracebackType
from typing import Any

from syncfree.benchmarking.samples import Reading

PERIOD_S = 0.02


class Monitor:
    """A thread that keeps the newest :class:`Reading` of one GPU; inside a ``with`` block.

    Where NVML cannot be read, `latest` is always None and `note` says why.

    Args:
        uuid: The GPU's UUID as NVML writes it (``"GPU-..."``); None for no GPU at all.
        period: Seconds between readings.

    Example:
        >>> from syncfree.benchmarking.nvml import Monitor
        >>> with Monitor(None) as monitor:
        ...     print(monitor.latest())
        None
    """

    def __init__(self, uuid: str | None, period: float = PERIOD_S) -> None:
        self.note = ""
        self._uuid = uuid
        self._period = period
        self._latest: Reading | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._nvml: Any = None
        self._handle: Any = None

    def latest(self) -> Reading | None:
        """The newest reading, at most about one period old."""
        return self._latest

    def __enter__(self) -> Monitor:
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
        self._latest = self._read()
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="syncfree-nvml", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None
            self._shut_down()

    def _run(self) -> None:
        while not self._stop.wait(self._period):
            self._latest = self._read()

    def _read(self) -> Reading:
        nvml, handle = self._nvml, self._handle
        # Older versions of the package know the reasons under the older name only.
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
        except self._nvml.NVMLError:  # this GPU does not tell, as with MIG
            return None

    def _shut_down(self) -> None:
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError as error:
            self.note = f"NVML did not shut down: {error}"
        self._nvml = None
