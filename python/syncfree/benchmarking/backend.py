"""The harness's interface to a device: it runs on GPUs, on CPUs, and in tests on neither."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from syncfree.benchmarking.host_speed import HostSpeed
from syncfree.benchmarking.samples import Loop, Sample

L2 = Literal["flush", "keep"]


class Clock(Protocol):
    """The host's monotonic clock."""

    def now(self) -> float:
        """Seconds."""

    def sleep(self, seconds: float) -> None:
        """Lets time pass; 0 gives other threads a turn."""


class HostClock:
    """The clock of this machine."""

    def now(self) -> float:
        """Seconds since an arbitrary moment."""
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        """As `time.sleep`."""
        time.sleep(seconds)


@dataclass
class Work:
    """A call to measure.

    Args:
        call: The function to time.
        args: Its arguments.
        setup: Called before each timed call, untimed. Unless it returns None, it returns the tuple
            of the call's arguments.
        l2: Whether the call's data are flushed from the GPU's L2 cache before each timed call.
        graph: Whether a CUDA graph of the call is replayed instead.
        streams: torch streams that the call uses besides the current one.
        single: Whether each sample is a single call, even if it is a short one on the CPU.
    """

    call: Callable[..., Any]
    args: tuple[Any, ...] = ()
    setup: Callable[[], Any] | None = None
    l2: L2 = "flush"
    graph: bool = False
    streams: Sequence[Any] = field(default_factory=tuple)
    single: bool = False

    def arguments(self) -> tuple[Any, ...]:
        """Runs the setup and returns the arguments of the call.

        Raises:
            TypeError: The setup returned neither None nor a tuple.
            ValueError: The setup returned arguments although there are `args`.
        """
        if self.setup is None:
            return self.args
        made = self.setup()
        if made is None:
            return self.args
        if not isinstance(made, tuple):
            raise TypeError(
                "setup returns None, or the tuple of arguments of the next call, but got "
                f"{type(made).__name__}"
            )
        if self.args:
            raise ValueError(
                "setup returned the arguments of the next call, but others were given as well: "
                "leave those out, or have setup return None"
            )
        return made


class Probe(Protocol):
    """Takes samples of one piece of work."""

    def prepare(self, limit: float = math.inf) -> float:
        """Calls the work a few times (lazy loading, compilation) and learns how to sample it.

        Args:
            limit: Seconds after the first call. When they have passed, no further call is begun,
                except one that tells how long a call takes.

        Returns:
            Seconds that the calls took without the first, which may have compiled something.
        """

    def why_not_gateable(self) -> str:
        """Empty if the call can be enqueued behind a gate, otherwise the reason."""

    def sample(self, *, gated: bool, pause: float = 0.0) -> Sample:
        """Times one call.

        Args:
            gated: Whether to hide the host's launch time.
            pause: Seconds of idleness right before the call, after everything that is not timed.
        """

    def why_no_loop(self) -> str:
        """Empty if back-to-back calls can be timed until all are done, otherwise the reason."""

    def loop(self) -> Loop | None:
        """Times calls back to back; None on a device without a queue of work."""

    def extra_bytes(self) -> int | None:
        """Peak memory of one call beyond what was in use before; None if it is unknown."""


class Backend(Protocol):
    """A device of one kind."""

    kind: Literal["cuda", "cpu"]
    clock: Clock
    host: HostSpeed

    def describe(self) -> str:
        """The device in words."""

    def probe(self, work: Work) -> Probe:
        """The probe that takes samples of the work.

        Raises:
            ValueError: The work needs something that this kind of device does not have.
        """

    def empty_us(self) -> float:
        """Time of a single call that does nothing."""
