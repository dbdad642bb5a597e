"""What a driver call means: a wait, a poll, maybe a wait, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from syncfree._runtime import DriverCall, symbols
from syncfree.detector.findings import Event, Frame, Verdict
from syncfree.detector.operators import forward_line, operator_stack
from syncfree.detector.stack import clean
from syncfree.detector.tier3.copies import Copy

# A call that may wait counts as a wait if the GPU was busy when it began and done when it returned,
# and if it took longer than these times, which it does not take without a wait. Loading code and
# building graphs takes long even without a wait.
_LONG_US = {"release": 500.0, "register": 500.0, "async copy": 500.0, "peer copy": 500.0}
_LONG_US_BY_ITSELF = 5000.0
_ONE_TIME = ("allocate", "load", "graph", "context")

_WAITS = {
    "cuCtxSynchronize": "The host waits for all work of the device.",
    "cuStreamSynchronize": "The host waits for all work of a stream.",
    "cuEventSynchronize": "The host waits for an event.",
}
_MAY_WAIT = {
    "allocate": "The driver may wait when it makes room for memory.",
    "register": "The driver may wait when it pins memory.",
    "release": "The driver may wait for work that could still use what is freed.",
    "load": "The driver loads code, and may wait for work that is under way.",
    "graph": "The driver builds or uploads a graph, and may wait.",
    "context": "The driver changes the context, and may wait.",
    "peer copy": "A copy between devices may wait.",
    "fill": "Filling host memory may wait.",
}
OUTLASTED = "The GPU was busy when this began, and done when it returned: the host waited."

# Libraries that every wait passes through and that never cause one: CUDA, the C library, ours.
_PASSED_OVER = ("libcuda.", "libcudart", "libcupti", "libc.", "libpthread", "_runtime.", "ld-linux")
# Libraries of Python and torch, which are not worth naming.
_USUAL = ("libtorch", "libc10", "libpython", "python", "_C.", "libstdc++", "libshm")
# Libraries that query events for their own purposes, as torch's allocators do.
_HOUSEKEEPERS = ("libtorch_cuda", "libtorch_cpu", "libc10", "libnccl", "libshm")

_NOTHING = None, ""


class Judge:
    """Turns driver calls into events.

    Args:
        waiting_size: Returns from which size on copies from pageable memory to the GPU wait; None
            if it is not known.
    """

    def __init__(self, waiting_size: Callable[[], int | None]) -> None:
        self._waiting_size = waiting_size
        self._stacks: dict[int, tuple[Frame, ...]] = {}
        self._libraries: dict[int, str] = {}
        self._seen: set[object] = set()

    def event(
        self, call: DriverCall, copy: Copy | None, below: tuple[Frame, ...] = ()
    ) -> Event | None:
        """The event of a call; None if nobody waited.

        Args:
            call: The call.
            copy: The result of `look_up` for the call.
            below: Frames of another thread that led to the call, as those of a backward pass.
        """
        verdict, why = self._verdict(call, copy)
        if verdict is None:
            return None
        blocked = (call.exit_ns - call.enter_ns) / 1e3
        long = _LONG_US.get(call.kind, _LONG_US_BY_ITSELF)
        if verdict is Verdict.CONDITIONAL and call.outlasted_gpu and blocked >= long:
            verdict, why = Verdict.SYNC, OUTLASTED
        api = call.copy_api or call.runtime or call.api
        host = None if copy is None or copy.host not in ("pinned", "pageable") else copy.host
        is_copy = "copy" in call.kind or bool(call.copy_api)
        return Event(
            api,
            verdict,
            why,
            self._stack(call, below),
            blocked_us=blocked,
            direction=copy.direction if copy is not None and is_copy else None,
            bytes=call.bytes if is_copy and call.bytes else None,
            host_memory=host if is_copy else None,
            op_stack=operator_stack(call.operators),
            forward=forward_line(call.forward, call.is_backward),
            library=self._cause(call) or None,
            one_time=self._is_first(call, api),
            outlasted_gpu=call.outlasted_gpu,
        )

    def needs_size(self, call: DriverCall, copy: Copy | None) -> bool:
        """Whether the verdict depends on the size from which on copies wait."""
        return call.kind == "async copy" and copy == Copy("h2d", "pageable")

    def _verdict(self, call: DriverCall, copy: Copy | None) -> tuple[Verdict | None, str]:
        if call.kind == "wait":
            return _of_wait(call)
        if call.kind == "query":
            return self._of_poll(call)
        if call.kind == "copy":
            return _of_copy(copy)
        if call.kind == "async copy":
            return self._of_async_copy(call, copy)
        if call.kind == "fill" and (copy is None or copy.host not in ("pinned", "managed")):
            return _NOTHING
        return Verdict.CONDITIONAL, _MAY_WAIT[call.kind]

    def _of_async_copy(self, call: DriverCall, copy: Copy | None) -> tuple[Verdict | None, str]:
        if copy is None or copy.host in ("device", "pinned"):
            return _NOTHING
        if copy.host != "pageable":
            return Verdict.CONDITIONAL, "A copy with memory of unknown kind: if pageable, it waits."
        if copy.direction == "d2h":
            return Verdict.SYNC, "A copy to pageable memory waits, also if it is non_blocking."
        size = self._waiting_size()
        if size is not None and call.bytes >= size:
            return Verdict.SYNC, "A large copy from pageable memory waits, also if non_blocking."
        return Verdict.CONDITIONAL, "A copy from pageable memory waits if it is large."

    def _of_poll(self, call: DriverCall) -> tuple[Verdict | None, str]:
        why = f"{call.queries} queries in a row found the GPU busy, until it was done."
        # The code of Python's `query()` may itself be in one of these libraries, in one frame. A
        # query for the library's own purposes comes from at least two frames of them.
        callers = self._callers(call)[:2]
        if len(callers) == 2 and all(each.startswith(_HOUSEKEEPERS) for each in callers):
            return Verdict.CONDITIONAL, f"{callers[0]} asks in a loop: {why}"
        return Verdict.POLL, f"The line asks in a loop: {why}"

    def _stack(self, call: DriverCall, below: tuple[Frame, ...]) -> tuple[Frame, ...]:
        if not call.frames:
            return below or (Frame("<no Python code>", 0, call.thread_name),)
        if call.place not in self._stacks:
            self._stacks[call.place] = clean(Frame(*each) for each in call.frames)
        return self._stacks[call.place] + below

    def _is_first(self, call: DriverCall, api: str) -> bool:
        line = call.thread, call.frames, api
        if call.kind not in _ONE_TIME or line in self._seen:
            return False
        self._seen.add(line)
        return True

    def _cause(self, call: DriverCall) -> str:
        """The library that waited; empty if a Python line waits in Python, torch or a binding."""
        if call.place not in self._libraries:
            callers = self._callers(call)
            usual = bool(call.frames) and bool(callers) and callers[0].startswith(_USUAL)
            binding = bool(call.frames) and bool(callers) and ".cpython-" in callers[0]
            self._libraries[call.place] = "" if usual or binding or not callers else callers[0]
        return self._libraries[call.place]

    @staticmethod
    def _callers(call: DriverCall) -> list[str]:
        """Names of the libraries between the program and CUDA, innermost first."""
        files = [Path(file).name for file, _ in symbols(list(call.addresses))]
        return [file for file in files if file and not file.startswith(_PASSED_OVER)]


def _of_wait(call: DriverCall) -> tuple[Verdict, str]:
    if call.copy_api:
        return Verdict.SYNC, f"The host waits until the copy is done ({call.runtime or call.api})."
    return Verdict.SYNC, _WAITS.get(call.api, "The host waits for the GPU.")


def _of_copy(copy: Copy | None) -> tuple[Verdict | None, str]:
    if copy is None:
        return _NOTHING
    if copy.direction is None:
        return Verdict.CONDITIONAL, "A synchronous copy waits if one end is host memory."
    return Verdict.SYNC, "A synchronous copy waits for the GPU."
