"""Times calls on the CPU by the monotonic clock."""

from __future__ import annotations

import math
import platform
from pathlib import Path
from typing import Literal

from syncfree.benchmarking.backend import Clock, HostClock, Work
from syncfree.benchmarking.host_speed import OF_THIS_PROCESS, HostSpeed
from syncfree.benchmarking.samples import Loop, Sample
from syncfree.timing.statistics import median

# Reading the clock costs tens of nanoseconds, so a sample must be much longer.
SAMPLE_US = 50.0
MOST_CALLS = 1000
LOOKS = 5
EMPTY_SAMPLES = 100


class CpuBackend:
    """CPU functions: wall time of the calling thread.

    Args:
        clock: The clock to read.
    """

    kind: Literal["cuda", "cpu"] = "cpu"

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = HostClock() if clock is None else clock
        self.host = OF_THIS_PROCESS if clock is None else HostSpeed(clock.now)

    def describe(self) -> str:
        """The processor's model name."""
        return processor_name()

    def probe(self, work: Work) -> CpuProbe:
        """The probe that takes samples of the work.

        Raises:
            ValueError: The work needs a CUDA graph or streams.
        """
        if work.graph:
            raise ValueError("graph=True captures a CUDA graph, but this function runs on the CPU")
        if work.streams:
            raise ValueError("streams are CUDA streams, but this function runs on the CPU")
        return CpuProbe(work, self.clock)

    def empty_us(self) -> float:
        """Time of a single call that does nothing: that of reading the clock around it."""
        probe = self.probe(Work(lambda: None, single=True))
        return median([probe.sample(gated=False).us for _ in range(EMPTY_SAMPLES)])


class CpuProbe:
    """Takes samples of one function; a short function is called several times per sample."""

    def __init__(self, work: Work, clock: Clock) -> None:
        self._work = work
        self._clock = clock
        self.calls = 1

    def prepare(self, limit: float = math.inf) -> float:
        """Calls the work and chooses how many calls make a sample."""
        self.sample(gated=False)
        if self._work.setup is not None or self._work.single:
            return 0.0
        begin = self._clock.now()
        looks = [self.sample(gated=False)]
        while len(looks) < LOOKS and self._clock.now() - begin < limit:
            looks.append(self.sample(gated=False))
        typical = median([each.us for each in looks])
        self.calls = max(1, min(MOST_CALLS, round(SAMPLE_US / max(typical, 1e-3))))
        return self._clock.now() - begin

    def why_not_gateable(self) -> str:
        """A CPU function has no queue to hold back."""
        return "it runs on the CPU"

    def sample(self, *, gated: bool, pause: float = 0.0) -> Sample:
        """Times a call, or the mean of several short ones; after a pause always a single call."""
        call, args, calls = self._work.call, self._work.arguments(), self.calls
        if pause:
            calls = 1
            self._clock.sleep(pause)
        begin = self._clock.now()
        for _ in range(calls):
            call(*args)
        us = (self._clock.now() - begin) * 1e6 / calls
        return Sample(us, us)

    def why_no_loop(self) -> str:
        """A call leaves nothing enqueued, so a loop has no time of its own to tell."""
        return "on the CPU a call is done when it returns: there is no queue that a loop could fill"

    def loop(self) -> Loop | None:
        """None: see `why_no_loop`."""
        return None

    def extra_bytes(self) -> int | None:
        """Unknown: torch counts memory on GPUs only."""
        return None


def processor_name() -> str:
    """The processor's model name, as far as the system reports it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
