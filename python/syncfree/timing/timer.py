"""The event timer: regions of a program, timed on the GPU without a wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from syncfree import _runtime
from syncfree._torch_functions import current_device_address, current_stream_address
from syncfree._types_of_extras import Figure, Table
from syncfree.errors import DeviceError
from syncfree.timing.companion import Companion
from syncfree.timing.nvml import gpu_uuid
from syncfree.timing.samples import Kind, Recording, Sample, from_runtime
from syncfree.timing.summary import Summary

Target = TypeVar("Target")

CUDA_CLOCK = "CUDA events"


class EventTimer(_runtime.RegionTimer):
    """Times regions with CUDA events, and never makes the host wait for the GPU.

    A region records an event at its beginning and one at its end, on the stream that is current
    when it begins. Later regions and :meth:`poll` ask, without waiting, which ends the GPU has
    passed, and turn those regions into samples. The time that two events take by themselves is
    measured once for each device and subtracted; see ``bracket_us`` of :meth:`json`. Regions may be
    nested, and may be on several streams and in several threads. On a stream that is being captured
    they become part of the CUDA graph; after a replay, `poll` reads its times.

    Without a GPU the host's monotonic clock is used, and every result says so.

    A copy, also in another process, is a new timer with the same options and no samples. A timer
    accepts 4,096 names, so a name must not contain what varies, such as a step's number.

    Args:
        device: ``None`` times the device that is current when a region begins, or the host if torch
            sees no GPU. ``"cuda:1"`` always times that device, ``"cpu"`` the host.
        capacity: How many regions of a device may be in flight at once. Beyond that the oldest one
            is dropped and counted.
        history: How many samples of each name are kept, for quantiles, traces and plots.
        stamp_every: One region in this many of each name is stamped with the GPU's clock, by two
            kernels of one thread, whose launches are part of the region's time; 0 for none.
        nvtx: Whether regions are NVTX ranges too, for Nsight; no effect without a GPU.
        nvml: Whether samples also have clock, power, temperature and throttle reasons. A thread
            reads them from NVML ten times a second until the timer is garbage-collected, for
            ``device`` or, without one, for the device that is current now. It changes no setting.

    Attributes:
        clock: Which clock the times are from: ``"CUDA events"``, or the host's clock and why.

    Raises:
        DeviceError: ``device`` is not a GPU of this machine.
        TypeError: ``device`` does not name a device.
        ValueError: A number is out of range.
        MissingExtraError: ``nvml=True``, and nvidia-ml-py is not installed.
        TimerError: The driver reported an error, or a region has a 4,097th name.

    Example:
        >>> import syncfree
        >>> timer = syncfree.EventTimer("cpu")
        >>> for _ in range(3):
        ...     with timer.region("step"):
        ...         total = sum(range(1000))
        >>> timer.summary()["step"].count
        3
    """

    clock: str
    _options: dict[str, Any]
    _companion: Companion | None

    def __new__(  # noqa: D102
        cls,
        device: torch.device | str | int | None = None,
        *,
        capacity: int = 2048,
        history: int = 1024,
        stamp_every: int = 64,
        nvtx: bool = False,
        nvml: bool = False,
    ) -> EventTimer:
        index, clock = _choose(device)
        place: tuple[Callable[[], int] | int | None, Callable[[int], int] | None] = (None, None)
        device_function, stream_function = 0, 0
        ranges: tuple[Callable[..., object] | None, ...] = (None, None)
        if clock == CUDA_CLOCK:
            torch.cuda.init()
            if nvtx:
                ranges = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
            if index is None and torch.cuda.device_count() == 1:
                index = 0
            place = (
                torch._C._cuda_getDevice if index is None else index,
                torch._C._cuda_getCurrentRawStream,
            )
            device_function, stream_function = current_device_address(), current_stream_address()
        self = super().__new__(
            cls,
            *place,
            capacity=capacity,
            history=history,
            stamp_every=stamp_every,
            push_range=ranges[0],
            pop_range=ranges[1],
            device_function=device_function,
            stream_function=stream_function,
        )
        self.clock = clock
        self._options = {
            "device": device,
            "capacity": capacity,
            "history": history,
            "stamp_every": stamp_every,
            "nvtx": nvtx,
            "nvml": nvml,
        }
        first, uuid = -1, None
        if clock == CUDA_CLOCK:
            first = torch.cuda.current_device() if index is None else index
            uuid = gpu_uuid(first) if nvml else None
            self.prepare(first)
        self._companion = Companion(self, first, uuid) if nvml else None
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (type(self), self._options)

    def start(
        self, name: str, kind: Kind = "compute", *, bytes: int | None = None
    ) -> _runtime.Region:
        """Begins a region that ends with its ``stop()``, where a `with` block does not fit.

        Args:
            name: As of `region`.
            kind: As of `region`.
            bytes: As of `region`.

        Returns:
            The region, which has begun.

        Example:
            >>> import syncfree
            >>> timer = syncfree.EventTimer("cpu")
            >>> region = timer.start("load")
            >>> region.stop()
            >>> timer.summary()["load"].count
            1
        """
        return self.region(name, kind, bytes=bytes).start()

    def recording(self) -> Recording:
        """All kept samples, with exact totals and counts. Never waits."""
        self.poll()
        recording = Recording(
            from_runtime(self.histories()),
            clock=self.clock,
            bracket_us=self.brackets(),
            **self.counts(),
        )
        if self._companion is None:
            return recording
        histories = self._companion.attach(recording.histories)
        return replace(recording, histories=histories, remarks=self._companion.notes)

    def samples(self) -> list[Sample]:
        """All kept samples, in the order in which the GPU began them. Never waits."""
        return self.summary().samples

    def summary(self) -> Summary:
        """The regions in figures, with a verdict on each. Never waits.

        Regions that the GPU has not finished are not included, and a note says how many these are;
        call `wait` before to include all.
        """
        return Summary(self.recording())

    def table(self) -> Table:
        """The same as ``summary().table()``."""
        return self.summary().table()

    def json(self, samples: bool = False) -> dict[str, Any]:
        """The same as ``summary().json(samples)``."""
        return self.summary().json(samples)

    def plot(self) -> Figure:
        """The same as ``summary().plot()``."""
        return self.summary().plot()

    def to_chrome_trace(self, path: str | Path | None = None) -> dict[str, Any]:
        """The same as ``summary().to_chrome_trace(path)``."""
        return self.summary().to_chrome_trace(path)

    def wrap(self, target: Target) -> Target:
        """Times the methods of a metric or collection, or the calls of a function.

        A metric stays the same object, with the same states, and is still an instance of its class.
        Copies and pickles of it are not timed. For any other module the result is a function
        without the module's parameters; to keep the module, write
        ``model.forward = timer.wrap(model.forward)``.

        Args:
            target: A metric or collection of TorchMetrics or syncfree, or a function.

        Returns:
            The metric itself, or a function to call instead.

        Raises:
            TypeError: The target is none of these.

        Example:
            >>> import torch, syncfree
            >>> timer = syncfree.EventTimer("cpu")
            >>> metric = timer.wrap(syncfree.PeakSignalNoiseRatio(data_range=1.0))
            >>> metric.update(torch.rand(4), torch.rand(4))
            >>> timer.summary()["PeakSignalNoiseRatio.update"].count
            1
        """
        from syncfree.timing.decorator import wrapped

        result: Target = wrapped(target, None, "compute", self, asked="EventTimer.wrap")
        return result

    def track_transfers(self) -> AbstractContextManager[None]:
        """Inside of the block, times copies between host and GPU as regions of their own.

        It sees calls of `Tensor.to`, ``cuda``, ``cpu``, ``copy_``, ``item``, ``tolist``, ``bool``,
        ``float``, ``int``, `torch.tensor` and `torch.as_tensor` that cross between host and GPU.
        The regions have the names of these calls, the kind ``"h2d"`` or ``"d2h"``, and the bytes.
        Each torch function in the block costs one more Python call.

        Example:
            >>> import torch, syncfree
            >>> timer = syncfree.EventTimer("cpu")
            >>> with timer.track_transfers():
            ...     x = torch.ones(3).to("cpu")
            >>> timer.samples()  # nothing crossed
            []
        """
        from syncfree.timing.transfers import tracking

        return tracking(self)

    def __repr__(self) -> str:
        return f"EventTimer({len(self.histories())} names, clock={self.clock!r})"


def _made(kind: type[EventTimer], options: dict[str, Any]) -> EventTimer:
    return kind(**options)


def _choose(device: torch.device | str | int | None) -> tuple[int | None, str]:
    """The index of a fixed device or None, and the name of the clock."""
    if device is None:
        reason = _runtime.cuda_status() if torch.cuda.is_available() else "torch sees no GPU"
        return None, CUDA_CLOCK if not reason else f"the host's clock, because {reason}"
    asked = _named(device)
    if asked.type == "cpu":
        return None, "the host's clock, as was asked"
    if asked.type != "cuda":
        raise DeviceError(f"a timer takes a CUDA device or the CPU, but got {asked}")
    if not torch.cuda.is_available():
        raise DeviceError(
            f"a timer was asked for {asked}, but torch sees no GPU here; without a device it uses "
            "the host's clock"
        )
    if asked.index is not None and asked.index >= torch.cuda.device_count():
        raise DeviceError(f"there are {torch.cuda.device_count()} GPUs, but got {asked}")
    reason = _runtime.cuda_status()
    if not reason:
        return asked.index, CUDA_CLOCK
    if torch.version.cuda is None:  # the sync detector's virtual device, or another maker's GPU
        return None, f"the host's clock, because {reason}"
    raise DeviceError(f"a timer cannot use {asked}: {reason}")


def _named(device: torch.device | str | int) -> torch.device:
    try:
        return torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    except (RuntimeError, TypeError):
        refused = DeviceError if isinstance(device, int) else TypeError
        expected = "'cuda', 'cuda:1', 'cpu', the index of a GPU or None"
        raise refused(f"a timer takes {expected}, but got {device!r}") from None


def require_timer(timer: EventTimer | None, asked: str) -> None:
    """Raises unless it is a timer or None; at once, as the first region may begin much later.

    Raises:
        TypeError: It is something else, such as the class.
    """
    if timer is not None and not isinstance(timer, _runtime.RegionTimer):
        raise TypeError(f"{asked} takes an EventTimer as its timer, but got {timer!r}")


_default: EventTimer | None = None
_default_lock = threading.Lock()


def default_timer() -> EventTimer:
    """The timer that `syncfree.timed` uses by default; made at its first use.

    Returns:
        The same timer for all threads of this process.

    Example:
        >>> import syncfree
        >>> from syncfree.timing import default_timer
        >>> @syncfree.timed(name="load")
        ... def load():
        ...     return 0
        >>> load()
        0
        >>> summary = default_timer().summary()  # of what the GPU has finished
    """
    global _default  # noqa: PLW0603
    with _default_lock:
        if _default is None:
            _default = EventTimer()
        return _default
