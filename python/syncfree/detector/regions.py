"""`detect_syncs`: a region of code in which waits are recorded, or cause a warning or an error."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Sequence
from types import TracebackType
from typing import Literal

from syncfree.detector.allow import Pattern, check_patterns, reason_for
from syncfree.detector.findings import Event, Verdict
from syncfree.detector.report import Report
from syncfree.detector.session import drain, enter_scope, leave_scope, session
from syncfree.detector.tiers import CHOICES, TierChoice
from syncfree.errors import DetectorError, SyncError, SyncWarning

Mode = Literal["record", "warn", "raise"]


def detect_syncs(
    mode: Mode = "record",
    max_syncs: int = 0,
    allow: Sequence[Pattern] = (),
    tier: TierChoice = "auto",
    raise_at: Literal["exit", "call"] = "exit",
    threads: Literal["inside", "all"] = "inside",
) -> Region:
    """Finds every line inside a ``with`` block that makes the host wait for the GPU.

    Regions may be nested; waits in an inner one count for the outer one too. A region observes the
    thread and the asyncio task that opened it, and the threads and tasks that these start. An
    exception raised in the block passes through unchanged. Nothing stays patched when the last
    region is closed.

    Args:
        mode: What happens at the end of a block with more than ``max_syncs`` waits: ``"record"``
            only fills the report, ``"warn"`` gives a :class:`SyncWarning` at each line that waits,
            ``"raise"`` raises.
        max_syncs: How many waits are accepted.
        allow: Waits that are intended: shell-style patterns for an api (``"Tensor.item"``), a
            function of the stack, or a file of the stack (``"metrics.py"``,
            ``"*/site-packages/*"``), or functions of an :class:`~syncfree.detector.Event` that
            return whether it is allowed. See also :func:`syncfree.allow_sync` and the comment
            ``# sync-ok: reason`` on a line of the stack or above it.
        tier: How waits are detected: 3 (CUPTI) and 2 (torch's sync debug mode) need a GPU, 0 does
            not; ``"auto"`` takes the one that sees most. docs/detector.md says what each sees.
        raise_at: ``"call"`` raises at the line, before the host waits; it needs ``mode="raise"``
            and tier 2 or 0. Tier 2 then accepts no wait, so ``max_syncs`` must be 0.
        threads: ``"all"`` observes every thread, also those that were already running.

    Returns:
        A context manager; its ``as`` target is the :class:`~syncfree.detector.Report`.

    Raises:
        ValueError: An argument has a value that is not listed above.
        TypeError: ``allow`` is not a list of strings and functions.
        DetectorError: On entry: the tier cannot work here.
        SyncError: On exit, or at the line with ``raise_at="call"``: the host waited too often.

    Example:
        >>> import syncfree
        >>> with syncfree.detect_syncs() as report:  # doctest: +SKIP
        ...     train_step(batch)
        >>> print(report)  # doctest: +SKIP
    """
    return Region(mode, max_syncs, allow, tier, raise_at, threads)


class Region:
    """What `detect_syncs` returns: a context manager for one block at a time.

    It can be entered again after it was left, and then begins a new report.
    """

    def __init__(
        self,
        mode: Mode,
        max_syncs: int,
        allow: Sequence[Pattern],
        tier: TierChoice,
        raise_at: Literal["exit", "call"],
        threads: Literal["inside", "all"],
    ) -> None:
        _one_of("mode", mode, ("record", "warn", "raise"))
        _one_of("tier", tier, CHOICES)
        _one_of("raise_at", raise_at, ("exit", "call"))
        _one_of("threads", threads, ("inside", "all"))
        if isinstance(max_syncs, bool) or not isinstance(max_syncs, int) or max_syncs < 0:
            raise ValueError(f"max_syncs is a count of at least 0, but got {max_syncs!r}")
        if raise_at == "call" and mode != "raise":
            raise ValueError(f"raise_at='call' needs mode='raise', but mode is {mode!r}")
        if raise_at == "call" and tier == 3:
            raise ValueError("raise_at='call' needs tier 2 or 0: tier 3 sees waits that have begun")
        self.mode = mode
        self.max_syncs = max_syncs
        self.tier = tier
        self.all_threads = threads == "all"
        self.raises_at_call = raise_at == "call"
        self.report = Report()
        self._patterns = check_patterns(allow)
        self._lock = threading.Lock()
        self._is_open = False
        self._began = 0.0
        self._seen: int | None = None

    def __enter__(self) -> Report:
        self.open()
        enter_scope(self)
        return self.report

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            leave_scope(self)
            own = self._as_wait(error)
        finally:
            self.close()
        if own is not None:
            raise self.error() from error
        if error is None:
            self.judge()

    def open(self) -> None:
        """Begins to listen; code is inside of the region only after `session.enter_scope`."""
        if self._is_open:
            raise DetectorError("this region is open already; make another with detect_syncs()")
        self.report = Report()
        tier = session.open(self, self.tier, raise_at_call=self.raises_at_call)
        self._is_open = True
        self.report.tier, self.report.note = tier.number, session.note
        if self.raises_at_call and self.max_syncs and tier.number != 0:
            self.close()
            raise ValueError(
                "raise_at='call' with a GPU raises at the first wait, so max_syncs must be 0, but "
                f"it is {self.max_syncs}"
            )
        self._seen = session.seen()
        self._began = time.perf_counter()

    def close(self) -> None:
        """Stops listening, without a judgment."""
        self.report.seconds = time.perf_counter() - self._began
        self.report.idle = self._is_idle()
        self._is_open = False
        session.close(self, raise_at_call=self.raises_at_call)

    def restart(self) -> Report:
        """Begins a new report and restarts the clock; returns the report so far."""
        drain()
        now = time.perf_counter()
        before, after = self.report, Report(self.report.tier, self.report.note)
        before.seconds, self._began, self.report = now - self._began, now, after
        before.idle, self._seen = self._is_idle(), session.seen()
        return before

    def _is_idle(self) -> bool:
        return self._seen is not None and self._seen == session.seen()

    def take(self, event: Event, *, may_raise: bool = True) -> None:
        """Records an event of code inside of the region, called in the event's own scope.

        Raises:
            SyncError: ``raise_at="call"``, and this wait is one too many.
        """
        reason = reason_for(event, self._patterns)
        if reason is not None:
            if event.verdict is not Verdict.CONDITIONAL:  # which would not count either
                with self._lock:
                    self.report.record_allowed(reason)
            return
        self.report.record(event)
        if may_raise and self.raises_at_call and self.report.count > self.max_syncs:
            raise self.error()

    def judge(self) -> None:
        """Warns or raises, depending on the mode, if there were too many waits."""
        if self.mode == "record" or self.report.count <= self.max_syncs:
            return
        if self.mode == "raise":
            raise self.error()
        for each in self.report.findings:
            if each.counts:
                text = f"the host waits here: {each.event.why} {each.suggestion}"
                warnings.warn_explicit(text, SyncWarning, each.file, each.line)

    def error(self) -> SyncError:
        """What `mode="raise"` raises."""
        return SyncError(f"at most {self.max_syncs} allowed, but {self.report}", self.report)

    def _as_wait(self, error: BaseException | None) -> SyncError | None:
        """Records the wait if tier 2 stopped it by this error; returns None for other errors."""
        if not self.raises_at_call or error is None or isinstance(error, SyncError):
            return None
        stopped = session.tier.event_of_error(error) if session.tier is not None else None
        if stopped is None:
            return None
        self.report.record(stopped)
        return self.error()


def _one_of(name: str, value: object, choices: Sequence[object]) -> None:
    if isinstance(value, bool) or value not in choices:
        allowed = ", ".join(map(repr, choices))
        raise ValueError(f"{name} is one of {allowed}, but got {value!r}")
