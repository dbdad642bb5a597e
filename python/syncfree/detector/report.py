"""What a region found: findings, tables, JSON and SARIF."""

from __future__ import annotations

import json as _json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from syncfree._types_of_extras import Table
from syncfree.detector.findings import Event, Finding, Frame, Recorder, Verdict, by_cost, site_of
from syncfree.errors import DetectorError, MissingExtraError

VERSION = 1
# Of several ranks the last of these holds.
_PROOFS = ("", "not proven", "proven")


class Report:
    """What a region found so far; complete once the region is closed.

    Attributes:
        tier: Number of the tier that looked: 0, 2 or 3.
        note: Why it was not a higher tier, or what else is to be said of it; may be empty.
        seconds: Wall time of the region, 0 while it is open.
        allowed: How many waits were allowed, by reason.
        failed: The program failed: what it did not reach is not judged.
        idle: No operation on a CUDA tensor ran, so nothing was judged. Only tier 0 sets it.

    Example:
        >>> import syncfree
        >>> with syncfree.detect_syncs(tier=0) as report:  # doctest: +SKIP
        ...     loss.item()
        >>> report.findings[0].line  # doctest: +SKIP
        2
    """

    def __init__(self, tier: int = 0, note: str = "") -> None:
        self.tier = tier
        self.note = note
        self.seconds = 0.0
        self.allowed: dict[str, int] = {}
        self.failed = False
        self.idle = False
        self._recorder = Recorder()
        self._fixed: list[Finding] | None = None

    @classmethod
    def of(
        cls,
        findings: Iterable[Finding],
        *,
        tier: int,
        note: str = "",
        seconds: float = 0.0,
        allowed: Mapping[str, int] | None = None,
        lost: int = 0,
        failed: bool = False,
        idle: bool = False,
    ) -> Report:
        """A report of findings that are known already."""
        report = cls(tier, note)
        report._fixed = by_cost(findings)
        report.seconds = seconds
        report.allowed = dict(allowed or {})
        report.record_lost(lost)
        report.failed = failed
        report.idle = idle
        return report

    @property
    def findings(self) -> list[Finding]:
        """The lines that wait, the most costly first."""
        return self._recorder.findings() if self._fixed is None else list(self._fixed)

    @property
    def count(self) -> int:
        """How many waits count against a limit: all but the conditional and the known ones."""
        if self._fixed is None:
            return self._recorder.counted()
        return sum(each.count for each in self._fixed if each.counts)

    @property
    def lost(self) -> int:
        """Calls that could not be kept because too many came at once; some may be waits."""
        return self._recorder.lost

    @property
    def known_count(self) -> int:
        """How many waits are known to the baseline that the report was compared with."""
        return sum(each.count for each in self.findings if each.known)

    @property
    def shown(self) -> list[Finding]:
        """The findings that texts and tables show: those that no baseline knows.

        The one-time copy of a line is left out if a later copy of the same line was a wait.
        """
        found = self.findings
        again = {_place_of(each) for each in found if each.waits}
        return [
            each
            for each in found
            if not (
                each.known or (each.event.one_time and not each.waits and _place_of(each) in again)
            )
        ]

    def record(self, event: Event) -> None:
        """Adds an event that is not allowed."""
        self._recorder.record(event)

    def record_allowed(self, reason: str) -> None:
        """Counts an event that is allowed."""
        self.allowed[reason] = self.allowed.get(reason, 0) + 1

    def record_lost(self, count: int) -> None:
        """Adds to the count of calls that the tier could not keep."""
        self._recorder.record_lost(count)

    def without(self, known: Iterable[Finding]) -> Report:
        """The same report without some of its findings."""
        sites = {site_of(each.event) for each in known}
        return self.with_findings(
            each for each in self.findings if site_of(each.event) not in sites
        )

    def compared(self, known: Iterable[Finding]) -> Report:
        """The same report with each wait marked as known to a baseline, or as new.

        Args:
            known: The findings that the baseline knows.
        """
        sites = {site_of(each.event) for each in known}
        return self.with_findings(
            replace(each, known=site_of(each.event) in sites) if each.waits else each
            for each in self.findings
        )

    def with_findings(self, findings: Iterable[Finding]) -> Report:
        """The same report with other findings."""
        return Report.of(
            findings,
            tier=self.tier,
            note=self.note,
            seconds=self.seconds,
            allowed=self.allowed,
            lost=self.lost,
            failed=self.failed,
            idle=self.idle,
        )

    def json(self) -> dict[str, Any]:
        """The documented JSON document (docs/detector.md), as plain values.

        Example:
            >>> from syncfree.detector import Report
            >>> Report.of([], tier=0).json()["findings"]
            []
        """
        return {
            "version": VERSION,
            "tier": self.tier,
            "note": self.note,
            "seconds": self.seconds,
            "count": self.count,
            "known_count": self.known_count,
            "allowed": dict(self.allowed),
            "lost": self.lost,
            "failed": self.failed,
            "idle": self.idle,
            "findings": [finding_as_json(each) for each in self.findings],
        }

    def sarif(self, root: str | Path | None = None) -> dict[str, Any]:
        """A SARIF 2.1.0 log, which code hosts show beside the lines.

        Args:
            root: Files below it get relative addresses; default: the working directory.
        """
        from syncfree.detector.sarif import as_sarif

        return as_sarif(self, Path.cwd() if root is None else Path(root))

    def __reduce__(self) -> tuple[Any, ...]:
        # A copied or pickled report has what was found so far.
        return report_from_json, (self.json(),)

    def table(self) -> Table:
        """The lines that wait as a table for ``rich.print``.

        Raises:
            MissingExtraError: rich is not installed; ``str(report)`` needs nothing.
        """
        try:
            from syncfree.detector.table import as_table
        except ImportError:
            raise MissingExtraError("The table of a report", "cli") from None
        return as_table(self)

    def __str__(self) -> str:
        from syncfree.detector.text import as_text

        return as_text(self)

    def __repr__(self) -> str:
        return f"Report(tier={self.tier}, count={self.count}, findings={len(self.findings)})"


def finding_as_json(finding: Finding) -> dict[str, Any]:
    """One finding of the JSON document."""
    event = finding.event
    return {
        "file": finding.file,
        "line": finding.line,
        "function": finding.function,
        "source": finding.source,
        "api": event.api,
        "verdict": event.verdict.value,
        "why": event.why,
        "count": finding.count,
        "blocked_us": finding.blocked_us,
        "direction": event.direction,
        "bytes": event.bytes,
        "host_memory": event.host_memory,
        "op_stack": list(event.op_stack),
        "forward": None if event.forward is None else _frame_as_json(event.forward),
        "library": event.library,
        "reader": None if event.reader is None else _caller_as_json(event.reader),
        "one_time": event.one_time,
        "ranks": list(finding.ranks),
        "proof": finding.proof,
        "known": finding.known,
        "caller": None if event.caller is None else _caller_as_json(event.caller),
        "stack": [_frame_as_json(frame) for frame in event.stack],
        "suggestion": finding.suggestion,
    }


def _frame_as_json(frame: Frame) -> dict[str, Any]:
    return {"file": frame.file, "line": frame.line, "function": frame.function}


def _caller_as_json(frame: Frame) -> dict[str, Any]:
    return {**_frame_as_json(frame), "source": frame.source}


def _place_of(finding: Finding) -> tuple[Frame, Frame | None, str]:
    return finding.frame, finding.event.caller, finding.event.api


def report_from_json(document: Mapping[str, Any] | str) -> Report:
    """The report that `Report.json` wrote.

    Args:
        document: What `Report.json` returned, or the same as JSON text.

    Returns:
        The report, with all findings.

    Raises:
        DetectorError: It is no such document, or has another version.

    Example:
        >>> import syncfree
        >>> from syncfree.detector import report_from_json
        >>> with syncfree.detect_syncs() as report:
        ...     pass
        >>> report_from_json(report.json()).count
        0
    """
    try:
        values: Mapping[str, Any] = _json.loads(document) if isinstance(document, str) else document
        check_version(values["version"])
        return Report.of(
            [_finding_from_json(each) for each in values["findings"]],
            tier=values["tier"],
            note=values.get("note", ""),
            seconds=values.get("seconds", 0.0),
            allowed=values.get("allowed"),
            lost=values.get("lost", 0),
            failed=values.get("failed", False),
            idle=values.get("idle", False),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DetectorError(
            f"this is no JSON report of the sync detector: {type(error).__name__}: {error}"
        ) from None


def check_version(version: Any, document: str = "the document") -> None:
    """Refuses documents of another version.

    Args:
        version: The version that the document states.
        document: How the error calls the document.

    Raises:
        DetectorError: The version is another.
    """
    if version != VERSION:
        raise DetectorError(
            f"{document} has version {version!r}, but this syncfree reads version {VERSION}"
        )


def _finding_from_json(values: Mapping[str, Any]) -> Finding:
    reader = values.get("reader")
    event = Event(
        api=values["api"],
        verdict=Verdict(values["verdict"]),
        why=values["why"],
        stack=tuple(Frame(**frame) for frame in values["stack"]),
        blocked_us=values["blocked_us"],
        direction=values["direction"],
        bytes=values["bytes"],
        host_memory=values["host_memory"],
        op_stack=tuple(values["op_stack"]),
        forward=None if values["forward"] is None else Frame(**values["forward"]),
        library=values["library"],
        one_time=values.get("one_time", False),
        reader=reader and Frame(reader["file"], reader["line"], reader["function"]),
    )
    return Finding(
        event,
        values["count"],
        values["blocked_us"],
        values["suggestion"],
        tuple(values.get("ranks", ())),
        values.get("proof", ""),
        values.get("known"),
    )


def merge_ranks(reports: Mapping[int, Report]) -> Report:
    """One report of all processes of a distributed run.

    A line that several ranks report is one finding: counts and times are added, and `ranks` says
    which ranks saw it. It is proven if one rank proved it. The wall time is the longest one.

    Args:
        reports: The report of each rank, at least one.

    Raises:
        ValueError: There is no report.

    Example:
        >>> from syncfree.detector import Report, merge_ranks
        >>> merge_ranks({0: Report.of([], tier=0), 1: Report.of([], tier=0)}).count
        0
    """
    if not reports:
        raise ValueError("merge_ranks needs at least one report, but got none")
    ordered = [report for _, report in sorted(reports.items())]
    marked = [
        [replace(each, ranks=(rank,)) for each in report.findings]
        for rank, report in sorted(reports.items())
    ]
    seconds = max(report.seconds for report in ordered)
    return _merged(ordered, marked, seconds)


def join(first: Report, second: Report) -> Report:
    """One report of two consecutive parts of a run."""
    findings = [first.findings, second.findings]
    return _merged([first, second], findings, first.seconds + second.seconds)


def _merged(reports: list[Report], findings: list[list[Finding]], seconds: float) -> Report:
    sums: dict[Any, Finding] = {}
    for each in (each for found in findings for each in found):
        total = sums.setdefault(site_of(each.event), replace(each, count=0, ranks=()))
        total.ranks += each.ranks
        total.proof = max(total.proof, each.proof, key=_PROOFS.index)
        if total.event.one_time and not each.event.one_time:
            total.event, total.suggestion = each.event, each.suggestion  # as `Recorder.record` does
        if each.blocked_us is not None and total.count:
            total.blocked_us = (total.blocked_us or 0.0) + each.blocked_us
        total.count += each.count
    allowed: Counter[str] = Counter()
    for report in reports:
        allowed.update(report.allowed)
    notes = dict.fromkeys(report.note for report in reports if report.note)
    return Report.of(
        sums.values(),
        tier=min(report.tier for report in reports),
        note="; ".join(notes),
        seconds=seconds,
        allowed=allowed,
        lost=sum(report.lost for report in reports),
        failed=any(report.failed for report in reports),
        idle=all(report.idle for report in reports),
    )
