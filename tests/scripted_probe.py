"""Scripted samples on a clock of their own."""

from __future__ import annotations

from collections.abc import Callable

from syncfree.benchmarking.samples import Loop, Sample


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class ScriptedProbe:
    """The n-th sample takes ``script(n)`` microseconds; the log tells who was called and how."""

    def __init__(
        self,
        clock: Clock,
        script: Callable[[int], float],
        *,
        name: str = "",
        log: list[str] | None = None,
        why_not: str = "",
        mhz: Callable[[int], float | None] = lambda n: None,
    ) -> None:
        self._clock, self._script, self._mhz = clock, script, mhz
        self._name, self._why_not = name, why_not
        self.log: list[str] = [] if log is None else log
        self.pauses: list[float] = []
        self.count = 0

    def prepare(self, limit: float) -> float:
        self._clock.seconds += 3.0  # compilation
        return 0.0

    def why_not_gateable(self) -> str:
        return self._why_not

    def sample(self, *, gated: bool, pause: float = 0.0) -> Sample:
        us = self._script(self.count)
        self._clock.seconds += us * 1e-6 + pause
        self.pauses.append(pause)
        self.log.append(self._name + ("" if gated else " plain"))
        self.count += 1
        return Sample(us, us / 10, self._mhz(self.count - 1))

    def why_no_loop(self) -> str:
        return ""

    def loop(self) -> Loop | None:
        return Loop(us=70.0, host_us=8.0)

    def extra_bytes(self) -> int | None:
        return 64
