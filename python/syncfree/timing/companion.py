"""Adds clock, power, temperature and throttle reasons to the samples of a timer."""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module

from syncfree.errors import MissingExtraError
from syncfree.timing.nvml import Monitor, Reading, reasons_in_words
from syncfree.timing.samples import History, Sample

# Ten readings a second cost next to nothing, also for a timer that runs for hours.
PERIOD_S = 0.1
_KEPT = 4096
_NEAR_PERIODS = 2


def nearest(times: Sequence[float], moment: float) -> int:
    """The index of the time that is nearest to a moment; the times must be ascending.

    Example:
        >>> nearest([1.0, 2.0, 4.0], 2.9), nearest([1.0, 2.0, 4.0], 3.1)
        (1, 2)
    """
    place = bisect_left(times, moment)
    if place == 0:
        return 0
    if place == len(times) or moment - times[place - 1] <= times[place] - moment:
        return place - 1
    return place


def beside(sample: Sample, reading: Reading) -> Sample:
    """The sample with the values of a reading."""
    return replace(
        sample,
        nvml_mhz=reading.megahertz,
        watts=reading.watts,
        celsius=reading.celsius,
        throttle=tuple(reasons_in_words(reading.reasons)),
    )


class Companion:
    """Takes readings for the samples of a timer, as long as the timer lives.

    Args:
        owner: The timer.
        device: Index of the GPU that is read; -1 without one.
        uuid: The UUID of that GPU; None without one.
        period: Seconds between readings.

    Raises:
        MissingExtraError: nvidia-ml-py is not installed.
    """

    def __init__(
        self, owner: object, device: int, uuid: str | None, period: float = PERIOD_S
    ) -> None:
        try:
            import_module("pynvml")
        except ImportError:
            raise MissingExtraError("`EventTimer(nvml=True)`", "bench") from None
        self._device = device
        self._near = _NEAR_PERIODS * period
        self._monitor = Monitor(uuid, period, keep=_KEPT).start()
        weakref.finalize(owner, self._monitor.stop)

    @property
    def notes(self) -> tuple[str, ...]:
        """Why there are no readings; empty if there are."""
        note = self._monitor.note
        if self._device < 0:
            note = "no NVML readings: the times are not of a GPU"
        return (f"{note[0].upper()}{note[1:]}.",) if note else ()

    def attach(self, histories: Sequence[History]) -> tuple[History, ...]:
        """The histories, with the reading nearest in time added to each sample."""
        readings = self._monitor.readings()
        times = [seconds for seconds, _ in readings]

        def told(sample: Sample) -> Sample:
            if sample.device != self._device or not times:
                return sample
            middle = (sample.gpu_start_us + sample.gpu_us / 2) * 1e-6
            place = nearest(times, middle)
            # The oldest reading says nothing about a sample from long before it.
            is_near = abs(times[place] - middle) <= self._near + sample.gpu_us / 2 * 1e-6
            return beside(sample, readings[place][1]) if is_near else sample

        return tuple(replace(each, samples=tuple(map(told, each.samples))) for each in histories)
