"""The tier: listens while a region is open, and records each event in the scope of its code."""

from __future__ import annotations

import atexit
import os
import threading
from typing import Any

from syncfree import _runtime
from syncfree._runtime import DriverCall
from syncfree.detector.findings import Recorder
from syncfree.detector.tier3.copies import Copy, look_up
from syncfree.detector.tier3.judging import Judge
from syncfree.detector.tier3.library import open_watch
from syncfree.detector.tier3.memory import waiting_size
from syncfree.detector.tier3.modes import beneath_modes
from syncfree.detector.tier3.scopes import Scopes
from syncfree.detector.tiers import Tier, TierUnavailableError

_TAKEN = 39  # CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
_PROFILER_NOTE = (
    "tier 3; said once: torch.profiler will see no GPU events in this process from now on, as "
    "CUPTI serves one tool"
)

_said: set[str] = set()
_mark_memory: list[Any] = []


class Tier3(Tier):
    """Records the driver calls that make the host wait, with the Python line.

    Args:
        recorder: Gets the events.
    """

    number = 3

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._lost = 0
        self._is_over = False
        self._error: Exception | None = None
        # The last copy of each thread: the wait for it, if one follows, is reported for both.
        self._held: dict[int, tuple[DriverCall, Copy | None]] = {}
        self._undecided: list[tuple[DriverCall, Copy | None]] = []

    def __enter__(self) -> Tier3:
        self._judge = Judge(waiting_size)
        self._scopes = Scopes(self.drain, self._mark)
        self._watch = _listening_watch()
        self._lost = self._watch.lost
        self._scopes.__enter__()
        self._reader = threading.Thread(target=self._read, name="syncfree-calls", daemon=True)
        self._reader.start()
        atexit.register(self._end)
        if _PROFILER_NOTE not in _said:
            _said.add(_PROFILER_NOTE)
            self.note = _PROFILER_NOTE
        return self

    def __exit__(self, *_: Any) -> None:
        atexit.unregister(self._end)
        self._scopes.__exit__()
        self._end()
        if os.getpid() == self._process:
            self.drain()
            with self._lock:
                self._release_all()
                self._decide()

    def drain(self) -> None:
        """Records what was logged so far, in the scope of each thread."""
        if os.getpid() != self._process:
            return
        with self._lock:
            error, self._error = self._error, None
            if error is not None:
                raise error
            self._take_all()
            held = self._held.pop(threading.get_native_id(), None)
            if held is not None:
                self._record(*held)
            self._decide()

    def note_scope(self) -> None:
        """Notes that the calling thread has changed its scope, and puts a mark."""
        if os.getpid() == self._process:
            self._scopes.note()
            self._mark()

    def _end(self) -> None:
        self._is_over = True
        if os.getpid() == self._process:
            self._watch.stop()
            self._watch.wake()
            self._reader.join(timeout=5.0)

    def _read(self) -> None:
        with _runtime.OwnCalls():
            while True:
                self._watch.sleep()
                if self._is_over:
                    return
                with self._lock:
                    try:
                        self._take_all()
                    except Exception as error:  # raised by a function of the program in ``allow=``
                        self._error = error

    def _take_all(self) -> None:
        for call in self._watch.drain():
            self._take(call)
        lost = self._watch.lost
        if lost != self._lost:
            self._recorder.record_lost(lost - self._lost)
            self._lost = lost

    def _take(self, call: DriverCall) -> None:
        has_memory = "copy" in call.kind or call.kind == "fill" or bool(call.copy_api)
        copy = look_up(call, self._watch) if has_memory else None
        if call.kind in ("wait", "async copy"):
            held = self._held.pop(call.thread, None)
            if call.kind == "wait" and call.copy_was_recorded:
                copy = held[1] if held is not None else copy
            elif held is not None:
                self._record(*held)
        if call.kind == "async copy":
            self._held[call.thread] = call, copy
        else:
            self._record(call, copy)

    def _release_all(self) -> None:
        held, self._held = self._held, {}
        for each in held.values():
            self._record(*each)

    def _record(self, call: DriverCall, copy: Copy | None) -> None:
        if self._judge.needs_size(call, copy):
            self._undecided.append((call, copy))
        else:
            self._judge_and_record(call, copy)

    def _decide(self) -> None:
        """Judges the copies whose verdict depends on the size from which on copies wait.

        Measuring that size may wait, so this is done in a thread of the program, where a scope
        ends anyway.
        """
        undecided, self._undecided = self._undecided, []
        for each in undecided:
            self._judge_and_record(*each)

    def _judge_and_record(self, call: DriverCall, copy: Copy | None) -> None:
        scope, below = self._scopes.of(call.thread, call.thread_name)
        event = self._judge.event(call, copy, below)
        if event is not None:
            # A copy, because the thread itself may be inside of the context at this moment.
            scope.copy().run(self._recorder.record, event)

    def _mark(self) -> None:
        """Puts a mark into the current stream, which tells later whether the GPU is busy."""
        import torch

        if not torch.cuda.is_initialized():
            return
        with _runtime.OwnCalls():
            if not _mark_memory:
                if torch.cuda.is_current_stream_capturing():
                    return
                count = self._watch.mark_bytes // 4
                with beneath_modes():
                    words = torch.zeros(count, dtype=torch.int32, device="cpu")
                    _mark_memory.append(words.pin_memory())
            self._watch.use_marks(_mark_memory[0].data_ptr())
            self._watch.put_mark(torch.cuda.current_stream().cuda_stream)


def _listening_watch() -> _runtime.DriverWatch:
    if not _runtime.can_walk_python_stack():
        raise TierUnavailableError(
            "this version of Python is not known well enough to read its stacks inside of the "
            "driver's calls"
        )
    watch = open_watch()
    result, word, holder = watch.start()
    if result == 0:
        return watch
    if result == _TAKEN:
        who = f"{holder} has it" if holder else "another tool has it, such as torch.profiler"
        raise TierUnavailableError(
            f"CUPTI serves one tool in a process, and {who}; look for waits in a process of its own"
        )
    raise TierUnavailableError(f"CUPTI does not start: {word} ({result})")
