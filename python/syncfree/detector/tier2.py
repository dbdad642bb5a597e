"""Tier 2: torch's sync debug mode, the only way to raise before the host waits for a real GPU.

It sees torch's scalar reads, blocking copies, data-dependent shapes and stream waits. It does not
see waits for events and devices, and waits inside of the allocator, libraries (CUB, cuSOLVER, NCCL)
and other packages; docs/detector.md lists them.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket

from syncfree.detector.findings import Event, Recorder, Verdict
from syncfree.detector.operators import operators_here
from syncfree.detector.patching import Patch
from syncfree.detector.stack import reader_here, stack_here, stack_of, stack_of_error
from syncfree.detector.stderr_lines import MESSAGE, StderrWatch
from syncfree.detector.tiers import Tier

# torch's warning when the mode is set.
_NOTICE = "Synchronization debug mode is a prototype feature"
_API = "torch sync debug mode"
_WHY = "A torch operation waits for the GPU here."
_UNPLACED = (
    "A function of a C++ extension, or one of several `torch.ops` calls at once, waits for the "
    "GPU; the line is where the program was when this was noticed, a moment later."
)


class Tier2(Tier):
    """Records the warnings of torch's sync debug mode, with the Python line.

    Args:
        recorder: Gets the events.
    """

    number = 2

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._lock = threading.Lock()
        self._raising = 0
        self._stderr = StderrWatch(self._unplaced)
        self._warnings = WarningHook(self._on_warning)
        self._patches = [
            Patch(each, "__call__", self._call) for each in (OpOverload, OpOverloadPacket)
        ]

    def __enter__(self) -> Tier2:
        self._owner = threading.get_ident()
        self._former = torch.cuda.get_sync_debug_mode()
        self._warnings.__enter__()
        self._stderr.__enter__()
        for patch in self._patches:
            patch.install()
        torch.cuda.set_sync_debug_mode("warn")
        return self

    def __exit__(self, *_: Any) -> None:
        torch.cuda.set_sync_debug_mode(self._former)
        for patch in self._patches:
            patch.remove()
        self._stderr.__exit__()
        self._warnings.__exit__()

    def raise_at_call(self, on: bool) -> None:
        """Makes torch raise instead of wait, until it is turned off as often as it was on."""
        with self._lock:
            self._raising += 1 if on else -1
            torch.cuda.set_sync_debug_mode("error" if self._raising > 0 else "warn")

    def event_of_error(self, error: BaseException) -> Event | None:
        """The wait that torch prevented by raising this error; None for any other error."""
        if not isinstance(error, RuntimeError) or MESSAGE not in str(error):
            return None
        return Event(_API, Verdict.SYNC, _WHY, stack_of_error(error.__traceback__))

    def _on_warning(self) -> None:
        # torch gives the warning after the operator that waited has returned to Python, so only the
        # operators around it are known, such as a node of autograd that is written in Python.
        op_stack, forward = operators_here()
        self._recorder.record(
            Event(
                _API,
                Verdict.SYNC,
                _WHY,
                stack_here(),
                op_stack=op_stack,
                forward=forward,
                reader=reader_here(),
            )
        )

    def _call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A call of a `torch.ops` operator: warnings on descriptor 2 meanwhile belong to it."""

        def call(operator: Any, /, *args: Any, **kwargs: Any) -> Any:
            self._stderr.expect()
            try:
                return original(operator, *args, **kwargs)
            finally:
                for _ in range(self._stderr.take()):
                    self._recorder.record(Event(str(operator), Verdict.SYNC, _WHY, stack_here()))

        return call

    def _unplaced(self, count: int) -> None:
        stack = stack_of(sys._current_frames().get(self._owner))
        for _ in range(count):
            self._recorder.record_for_all(
                Event(_API, Verdict.SYNC, _UNPLACED, stack, library="a C++ extension")
            )


class WarningHook:
    """While active, torch's sync warnings call a function instead of being shown.

    Python's filters drop repeated warnings, so the hook has a filter of its own. When the program
    calls `warnings.catch_warnings`, `simplefilter` and the like, which replace filters and hooks,
    ours are put first again.

    Args:
        notice: Called for every sync warning, in the thread and at the place that caused it.
    """

    def __init__(self, notice: Callable[[], None]) -> None:
        self._notice = notice
        self._filter: Any = None
        self._is_active = False
        self._patches = [
            Patch(warnings.catch_warnings, "__enter__", self._then_first),
            Patch(warnings, "simplefilter", self._then_first),
            Patch(warnings, "resetwarnings", self._then_first),
        ]
        self._filterwarnings = Patch(warnings, "filterwarnings", self._then_first)

    def __enter__(self) -> WarningHook:
        self._is_active = True
        for patch in (*self._patches, self._filterwarnings):
            patch.install()
        self._come_first()
        return self

    def __exit__(self, *_: Any) -> None:
        self._is_active = False
        for patch in (*self._patches, self._filterwarnings):
            patch.remove()
        show = warnings.showwarning
        if isinstance(show, _Show):
            warnings.showwarning = show.former
        if self._filter in warnings.filters:
            warnings.filters.remove(self._filter)  # type: ignore[attr-defined]

    def takes(self, message: Warning | str) -> bool:
        """Handles a warning; whether it was a sync warning or one about the mode itself."""
        if not self._is_active:
            return False
        if MESSAGE in str(message):
            self._notice()
            return True
        return str(message).startswith(_NOTICE)

    def _then_first(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            self._come_first()
            return result

        return call

    def _come_first(self) -> None:
        if not warnings.filters or warnings.filters[0] is not self._filter:
            self._filterwarnings.original("always", f"{_NOTICE}|.*{MESSAGE}", UserWarning)
            self._filter = warnings.filters[0]
        if not isinstance(warnings.showwarning, _Show):
            warnings.showwarning = _Show(self, warnings.showwarning)


class _Show:
    """Replaces `warnings.showwarning`, and passes other warnings to the function it replaced."""

    def __init__(self, hook: WarningHook, former: Callable[..., None]) -> None:
        self._hook = hook
        self.former = former

    def __call__(self, message: Warning | str, *args: Any, **kwargs: Any) -> None:
        if not self._hook.takes(message):
            self.former(message, *args, **kwargs)
