"""Times calls on a GPU by events behind a gate: a bounded spin that holds the stream.

While the gate spins, the host enqueues the call. So the time between the events is that of the GPU
work and of the gaps between dependent kernels, not the time that the host took to launch them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from syncfree.benchmarking.backend import Clock, HostClock, Work
from syncfree.benchmarking.host_speed import OF_THIS_PROCESS, HostSpeed
from syncfree.benchmarking.samples import Loop, Sample
from syncfree.timing.statistics import median

GATE_MARGIN_US = 200.0
LONGEST_GATE_US = 100_000.0
GATE_TRIES = 5
LOOKS = 5
FIRST_CALLS = 3
EMPTY_SAMPLES = 11
BUSY_POLL_S = 0.002
# A loop is much longer than the overhead around it, and fits into the driver's queue of launches.
LOOP_HOST_US = 10_000.0
LOOP_GPU_US = 20_000.0
MOST_LOOPED = 500

GATE_OPENED = "the gate opened before the host had enqueued the call"
SETUP_BETWEEN = (
    "setup runs between the calls of a loop; the host's time leaves it out, but the GPU's cannot"
)


class EventPair(Protocol):
    """Two CUDA events."""

    def start(self, stream: int) -> None:
        """Records the first."""

    def stop(self, stream: int) -> None:
        """Records the second."""

    def ready(self) -> bool:
        """Whether both are complete; a query."""

    def microseconds(self) -> float:
        """The time between them."""


class ClockStamp(Protocol):
    """A kernel that stores the GPU's time and its count of clock cycles."""

    def record(self, stream: int) -> None:
        """Enqueues it."""

    def ready(self) -> bool:
        """Whether it has run; a query."""

    def mhz_since(self, earlier: Any) -> float | None:
        """The mean clock between an earlier stamp and this one; None if it cannot be told."""


class Runtime(Protocol):
    """The part of `syncfree._runtime` that talks to the driver."""

    def spin(self, stream: int, microseconds: float) -> None:
        """Enqueues a kernel that spins for this time."""

    def EventPair(self) -> EventPair:
        """A new pair."""

    def ClockStamp(self) -> ClockStamp:
        """A new stamp."""


class Gpu(Protocol):
    """Services of torch for the device and its current stream."""

    def describe(self) -> str:
        """The device's name."""

    def stream(self) -> int:
        """Handle of the current stream."""

    def synchronize(self) -> None:
        """Waits for all work of the device."""

    def flush_l2(self) -> None:
        """Enqueues a read of more than the L2 cache holds."""

    def fork(self, streams: Sequence[Any]) -> None:
        """Makes the streams wait for the current one."""

    def join(self, streams: Sequence[Any]) -> None:
        """Makes the current stream wait for the streams."""

    def capture(self, call: Callable[..., Any], args: tuple[Any, ...]) -> Callable[[], Any]:
        """Captures a call into a CUDA graph; returns its replay."""

    def peak_bytes(self, call: Callable[[], Any]) -> int:
        """Peak memory of a call beyond what was in use before."""

    def device_allocations(self) -> int:
        """How often the allocator has asked the driver for memory so far."""

    def waits_of(self, call: Callable[[], Any]) -> str:
        """The lines at which a call makes the host wait; empty if none is seen."""


class CudaBackend:
    """GPU functions, by events on the current stream.

    Args:
        gpu: The device.
        runtime: Spins, events and stamps.
        clock: The host's clock.
    """

    kind: Literal["cuda", "cpu"] = "cuda"

    def __init__(self, gpu: Gpu, runtime: Runtime, clock: Clock | None = None) -> None:
        self.gpu = gpu
        self.runtime = runtime
        self.clock: Clock = HostClock() if clock is None else clock
        self.host = OF_THIS_PROCESS if clock is None else HostSpeed(clock.now)
        self._empty_us: float | None = None

    def describe(self) -> str:
        """The device's name."""
        return self.gpu.describe()

    def probe(self, work: Work) -> CudaProbe:
        """The probe that takes samples of the work.

        Raises:
            ValueError: There is a setup although a graph is replayed, which always uses the
                arguments it was captured with.
        """
        if work.graph and work.setup is not None:
            raise ValueError(
                "graph=True replays the call with the tensors it was captured with: setup cannot "
                "be combined with it. Fill the same tensors inside the function, or leave graph out"
            )
        return CudaProbe(work, self.gpu, self.runtime, self.clock)

    def empty_us(self) -> float:
        """Time between two events with nothing between them, measured once."""
        if self._empty_us is None:
            probe = self.probe(Work(lambda: None, l2="keep"))
            probe.prepare()
            self._empty_us = median([probe.sample(gated=True).us for _ in range(EMPTY_SAMPLES)])
        return self._empty_us


class CudaProbe:
    """Takes samples of one function."""

    def __init__(self, work: Work, gpu: Gpu, runtime: Runtime, clock: Clock) -> None:
        self._work = work
        self._gpu = gpu
        self._runtime = runtime
        self._clock = clock
        self._call: Callable[..., Any] = work.call
        self._args = work.arguments
        # Created once, because creating an event costs the host more than recording it.
        self._events = runtime.EventPair()
        self._before, self._after = runtime.ClockStamp(), runtime.ClockStamp()
        self._gate_us = GATE_MARGIN_US
        self._misses = 0
        self._host_us = self._plain_us = 1.0
        self._leaves_no_try = False

    def prepare(self, limit: float = math.inf) -> float:
        """Calls the work until lazy loading is over, captures its graph, and sizes the gate."""
        self._call(*self._args())
        self._gpu.synchronize()
        begin = self._clock.now()
        for _ in range(FIRST_CALLS - 1):
            if self._clock.now() - begin < limit:
                self._call(*self._args())
                self._gpu.synchronize()
        if self._work.graph:
            self._call = self._gpu.capture(self._work.call, self._work.args)
            self._args = tuple
        looks = [self.sample(gated=False)]
        while len(looks) < LOOKS and self._clock.now() - begin < limit:
            looks.append(self.sample(gated=False))
        self._host_us = median([each.host_us for each in looks])
        self._plain_us = median([each.us for each in looks])
        self._gate_us = min(3 * self._host_us + GATE_MARGIN_US, LONGEST_GATE_US)
        self._leaves_no_try = looks[0].seconds >= limit
        return self._clock.now() - begin

    def why_not_gateable(self) -> str:
        """Empty if the host can enqueue the whole call while the gate is shut.

        A call that waits for the GPU waits for the gate too, however long that spins.
        """
        if self._leaves_no_try:
            return f"a call takes {self._plain_us * 1e-6:.3g} s: the time limit left none to try it"
        for _ in range(GATE_TRIES):
            tried_us = self._gate_us
            if not self.sample(gated=True).problem:
                return ""
            if tried_us >= LONGEST_GATE_US:
                break
        lines = self._gpu.waits_of(lambda: self._call(*self._args()))
        if lines:
            return f"waits at {lines}"
        return (
            f"the host does not get through the call in {tried_us:.0f} us, the longest gate tried: "
            "it makes more launches than the driver queues (about 1000), or waits in a way "
            "that the sync detector does not see"
        )

    def sample(self, *, gated: bool, pause: float = 0.0) -> Sample:
        """Times one call. If the gate opened too early, the sample's `problem` says so."""
        gpu, clock, events, streams = self._gpu, self._clock, self._events, self._work.streams
        args = self._args()
        stream = gpu.stream()
        if self._work.l2 == "flush":
            gpu.flush_l2()
        if pause or not gated:
            gpu.synchronize()  # otherwise the flush would act as a gate
        allocations = gpu.device_allocations()
        # A plain sample after a pause must contain the first launch after it, so no stamp comes
        # before the call.
        stamped = gated or not pause
        if pause:
            clock.sleep(pause)
        shut = clock.now()
        if gated:
            self._runtime.spin(stream, self._gate_us)
        if stamped:
            self._before.record(stream)
        events.start(stream)
        gpu.fork(streams)
        begin = clock.now()
        self._call(*args)
        end = clock.now()
        gpu.join(streams)
        events.stop(stream)
        # The spin began after `shut`, so it cannot have ended if less than its length has passed.
        held = (clock.now() - shut) * 1e6 < self._gate_us
        if stamped:
            self._after.record(stream)
        self._resolve((events, self._before, self._after) if stamped else (events,))
        if gated:
            self._grow_gate(held)
        return Sample(
            us=events.microseconds(),
            host_us=(end - begin) * 1e6,
            megahertz=self._after.mhz_since(self._before) if stamped else None,
            device_allocations=gpu.device_allocations() - allocations,
            problem=GATE_OPENED if gated and not held else "",
        )

    def why_no_loop(self) -> str:
        """With a setup, a loop also contains the setup's work between the calls."""
        return "" if self._work.setup is None else SETUP_BETWEEN

    def loop(self) -> Loop:
        """Times calls back to back, as a training loop makes them: warm caches, no wait between.

        A single call, as in the samples, costs the host several times as much.
        """
        host, whole = max(self._host_us, 1.0), max(self._plain_us, 1.0)
        calls = max(2, int(min(LOOP_HOST_US / host, LOOP_GPU_US / whole, MOST_LOOPED)))
        if self._work.setup is not None:
            return self._loop_with_setup(max(2, calls // 2))  # the setup's launches are queued too
        gpu, clock, args = self._gpu, self._clock, self._args()
        gpu.fork(self._work.streams)
        for _ in range(max(2, calls // 10)):
            self._call(*args)
        gpu.synchronize()
        begin = clock.now()
        for _ in range(calls):
            self._call(*args)
        enqueued = clock.now()
        gpu.synchronize()
        end = clock.now()
        gpu.join(self._work.streams)
        return Loop(us=(end - begin) / calls * 1e6, host_us=(enqueued - begin) / calls * 1e6)

    def _loop_with_setup(self, calls: int) -> Loop:
        """Times only the host: its clock is read before and after each call."""
        gpu, clock = self._gpu, self._clock
        gpu.fork(self._work.streams)
        for _ in range(max(2, calls // 10)):
            self._call(*self._args())
        gpu.synchronize()
        seconds = 0.0
        for _ in range(calls):
            args = self._args()
            begin = clock.now()
            self._call(*args)
            seconds += clock.now() - begin
        gpu.synchronize()
        gpu.join(self._work.streams)
        return Loop(us=None, host_us=seconds / calls * 1e6)

    def extra_bytes(self) -> int | None:
        """Peak of the caching allocator in one call, beyond what was in use before."""
        args = self._args()
        return self._gpu.peak_bytes(lambda: self._call(*args))

    def _grow_gate(self, held: bool) -> None:
        # A single miss is an interruption of the host and no reason to make later samples longer.
        self._misses = 0 if held else self._misses + 1
        if self._misses > 1:
            self._gate_us = min(2 * self._gate_us, LONGEST_GATE_US)

    def _resolve(self, pending: Sequence[EventPair | ClockStamp]) -> None:
        begin = self._clock.now()
        while not all(each.ready() for each in pending):
            # Polling without a pause keeps the host awake, as a training loop does.
            busy = self._clock.now() - begin < BUSY_POLL_S
            self._clock.sleep(0 if busy else 1e-4)
