"""Events, which a tier records, and findings, which a user reads. Does not use torch."""

from __future__ import annotations

import ast
import linecache
import re
import threading
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from syncfree.detector.places import in_standard_library, installed_name
from syncfree.detector.suggestions import suggest


class Verdict(str, Enum):
    """How sure it is that the host waited. Only `SYNC` and `POLL` count against a limit."""

    SYNC = "sync"
    """The host waits here, always."""
    POLL = "poll"
    """Python asks in a loop until the GPU is done, which is a wait by another name."""
    CONDITIONAL = "conditional"
    """The driver may wait here (allocator, module loading): shown, not counted."""


@dataclass(frozen=True)
class Frame:
    """A place in Python code; `function` is the qualified name where Python knows it."""

    file: str
    line: int
    function: str

    @property
    def source(self) -> str:
        """The line's text without indentation; empty where the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    @property
    def statement(self) -> str:
        """The text of the whole statement on one line, without its body."""
        lines, _ = _statement(self.file, self.line, self.source)
        return " ".join(lines)

    @property
    def excerpt(self) -> str:
        """The text that a report shows: the statement; if that is long, from this line on."""
        lines, before = _statement(self.file, self.line, self.source)
        if len(lines) < 2:
            return self.source
        text = _in_one(lines)
        if len(text) > _LONG:
            text = _in_one(lines[before:])
        return text if len(text) <= _LONG else f"{text[:_LONG]} ..."

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


_LONG = 160
_COMMENT = re.compile(r"(^|\s+)#\s.*$")
_WITHOUT_SPACE = re.compile(r"(?<=[(\[{])\n|\n(?=[)\]}.])")


def _in_one(lines: Iterable[str]) -> str:
    text = "\n".join(filter(None, (_COMMENT.sub("", each) for each in lines)))
    return _WITHOUT_SPACE.sub("", text).replace("\n", " ")


@lru_cache(maxsize=1024)
def _statement(file: str, line: int, source: str) -> tuple[list[str], int]:
    """The lines of the statement at a line, and how many of them come before that line."""
    lines = linecache.getlines(file)
    around = [(first, last) for first, last in _statements("".join(lines)) if first <= line <= last]
    first, last = max(around, default=(line, line))
    return [each.strip() for each in lines[first - 1 : last]] or [source], line - first


@lru_cache(maxsize=16)
def _statements(text: str) -> list[tuple[int, int]]:
    """First and last line of each statement; for one with a body, such as `if`, of its head."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python gave the file's warnings at its import
            tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    bodies = [_first_of_body(node) for node in nodes]
    return [
        (node.lineno, max(node.lineno, first - 1) if first else node.end_lineno or 0)
        for node, first in zip(nodes, bodies, strict=True)
    ]


def _first_of_body(statement: ast.stmt) -> int | None:
    if isinstance(statement, ast.Match):
        return statement.cases[0].pattern.lineno
    body = getattr(statement, "body", None)
    return body[0].lineno if body else None


FORWARD_NOT_KEPT = Frame("<forward line not kept>", 0, "<unknown>")
"""Stands for the line of a forward pass that ran before the region, or too long ago."""


@dataclass(frozen=True)
class Event:
    """One occurrence of a wait.

    Args:
        api: The call that waited, for example ``"Tensor.item"``, ``"aten::nonzero"``,
            ``"cuStreamSynchronize"``.
        verdict: How sure it is that the host waited.
        why: One sentence that says why the host waits here.
        stack: Innermost first, without frames of syncfree and of torch's own Python files; never
            empty.
        blocked_us: Microseconds lost; ``None`` if unknown (tiers 0 and 2).
        direction: ``"d2h"`` or ``"h2d"`` for a copy.
        bytes: Size of a copy.
        host_memory: ``"pageable"`` or ``"pinned"`` for a copy.
        op_stack: Operators of torch and nodes of autograd that were running, innermost first.
        forward: For a wait in a backward pass, the line of the forward pass that made the autograd
            node (the forward line); `FORWARD_NOT_KEPT` if that is no longer known.
        library: The C++ library that waited, if the wait was not caused by Python or torch.
        one_time: The first occurrence of lazy loading or allocator growth, or the first copy of
            weights or data to the GPU.
        outlasted_gpu: If the GPU was known to be busy when the call began: whether it was done when
            the call returned; otherwise ``None``.
        reader: The function of torch's own Python code that waits, called at the innermost line.
    """

    api: str
    verdict: Verdict
    why: str
    stack: tuple[Frame, ...]
    blocked_us: float | None = None
    direction: str | None = None
    bytes: int | None = None
    host_memory: str | None = None
    op_stack: tuple[str, ...] = ()
    forward: Frame | None = None
    library: str | None = None
    one_time: bool = False
    outlasted_gpu: bool | None = None
    reader: Frame | None = None

    @property
    def caller(self) -> Frame | None:
        """The program's line that led to a wait inside of a package or the standard library.

        None for other waits.
        """
        if not installed_name(self.stack[0].file):
            return None
        return next((each for each in self.stack if not installed_name(each.file)), None)


@dataclass
class Finding:
    """All events with the same line, api, verdict and forward line.

    Events inside of a package or the standard library also share the program's calling line.

    Args:
        event: The first of them, or the first that is not a one-time matter.
        count: How many there were.
        blocked_us: Microseconds lost by all of them; ``None`` if unknown.
        suggestion: What to write instead.
        ranks: Processes of a distributed run that saw it; empty for a single process.
        proof: ``"proven"`` or ``"not proven"`` by a spinning kernel; empty if nobody tried.
        known: Whether the baseline has it; ``None`` if it was not compared with one.
    """

    event: Event
    count: int
    blocked_us: float | None
    suggestion: str
    ranks: tuple[int, ...] = ()
    proof: str = ""
    known: bool | None = None

    @property
    def frame(self) -> Frame:
        """The innermost place outside of torch and syncfree."""
        return self.event.stack[0]

    @property
    def file(self) -> str:
        """The file of the line that waits."""
        return self.frame.file

    @property
    def line(self) -> int:
        """The number of the line that waits."""
        return self.frame.line

    @property
    def function(self) -> str:
        """The function with the line that waits."""
        return self.frame.function

    @property
    def source(self) -> str:
        """The text of the line that waits."""
        return self.frame.source

    @property
    def waits(self) -> bool:
        """Whether the host waited, as far as is known."""
        return self.event.verdict is not Verdict.CONDITIONAL

    @property
    def counts(self) -> bool:
        """Whether it counts against a limit, and makes the command exit with 1."""
        return self.waits and not self.known


Line = tuple[Frame, "Frame | None", str, Verdict]
Site = tuple[Line, "Frame | None"]


def line_of(event: Event) -> Line:
    """The key of a line: equal for all its findings, whatever their forward lines."""
    return event.stack[0], event.caller, event.api, event.verdict


def site_of(event: Event) -> Site:
    """The key of a finding: equal for all its events."""
    return line_of(event), event.forward


class Recorder:
    """Collects events into findings; any thread may record.

    Example:
        >>> from syncfree.detector.findings import Event, Frame, Recorder, Verdict
        >>> recorder = Recorder()
        >>> place = Frame("train.py", 7, "step")
        >>> for _ in range(3):
        ...     recorder.record(Event("Tensor.item", Verdict.SYNC, "It reads.", (place,)))
        >>> [(finding.line, finding.count) for finding in recorder.findings()]
        [(7, 3)]
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._findings: dict[Site, Finding] = {}
        self.lost = 0

    def record(self, event: Event) -> None:
        """Adds one event."""
        with self._lock:
            finding = self._findings.get(site_of(event))
            if finding is None:
                # The suggestion needs the source line, so it is made only when somebody asks.
                self._findings[site_of(event)] = Finding(event, 1, event.blocked_us, "")
                return
            finding.count += 1
            if finding.event.one_time and not event.one_time:
                finding.event = event  # not only the first time, after all
            if event.blocked_us is not None:
                finding.blocked_us = (finding.blocked_us or 0.0) + event.blocked_us

    def record_for_all(self, event: Event) -> None:
        """Adds an event whose cause is unknown, and which therefore goes to all open regions."""
        self.record(event)

    def record_lost(self, count: int) -> None:
        """Adds to the count of calls that a tier could not keep: the findings are incomplete."""
        with self._lock:
            self.lost += count

    def findings(self) -> list[Finding]:
        """The findings so far, the most costly first: by time lost, then by count."""
        with self._lock:
            found = [
                Finding(each.event, each.count, each.blocked_us, each.suggestion)
                for each in self._findings.values()
            ]
        for each in found:
            each.suggestion = suggest(
                api=each.event.api,
                source=_advised_line(each).source,
                statement=_advised_line(each).statement,
                file=each.file,
                op_stack=each.event.op_stack,
                direction=each.event.direction,
                host_memory=each.event.host_memory,
                reader=f"{each.event.reader.file}:{each.event.reader.function}"
                if each.event.reader
                else "",
                one_time=each.event.one_time,
            )
        return by_cost(found)

    def counted(self) -> int:
        """How many events count against a limit."""
        with self._lock:
            return sum(each.count for each in self._findings.values() if each.counts)


def _advised_line(finding: Finding) -> Frame:
    """The line to change: for a wait inside of the standard library, that of its caller."""
    if finding.event.caller is None or not in_standard_library(finding.file):
        return finding.frame
    return finding.event.caller


def by_cost(findings: Iterable[Finding]) -> list[Finding]:
    """Sorted by time lost, then by count; known and conditional findings come last."""
    return sorted(
        findings,
        key=lambda each: (
            not each.counts,
            not each.waits,
            -(each.blocked_us or 0.0),
            -each.count,
        ),
    )
