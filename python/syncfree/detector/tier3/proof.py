"""Proves findings: a line that waits cannot get past a GPU that is kept busy.

Before a guilty line a spinning kernel is queued with a mark behind it. A call of that line which
finds the mark pending and returns only when it has been reached has waited; one that returns before
has not. The kernel ends by itself, so that the program goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from syncfree import _runtime
from syncfree.detector.findings import Event, Finding, Verdict
from syncfree.detector.line_hooks import BeforeLines, Place
from syncfree.detector.report import Report
from syncfree.detector.session import session
from syncfree.detector.tier3.spin import Spin

PROVEN, NOT_PROVEN = "proven", "not proven"
_WHY = "Behind a spinning kernel it did not return before the GPU was done."

# How often each line is tried, and for how long: longer where the host came too late to the call.
_TRIES = 3
_SHORTEST_MS, _LONGEST_MS = 50.0, 400.0

Site = tuple[Place, str]


class Prover:
    """Tries the findings of a report while the program runs again inside of a tier 3 region.

    Args:
        findings: What to prove.
    """

    def __init__(self, findings: Iterable[Finding]) -> None:
        self._sites = {_site_of(each.event) for each in findings}
        self._left = Counter({place: _TRIES for place, _ in self._sites})
        self._ms: dict[Place, float] = {}
        self._answers: dict[Site, list[bool]] = {}
        self._hooks = BeforeLines(self._left, self._before)

    def __enter__(self) -> Prover:
        self._hooks.__enter__()
        return self

    def __exit__(self, *_: Any) -> None:
        self._hooks.__exit__()

    def take(self, event: Event) -> bool:
        """Hears of an event, as a pattern of ``allow=`` that allows nothing."""
        site = _site_of(event)
        if site in self._sites and event.outlasted_gpu is not None:
            self._answers.setdefault(site, []).append(event.outlasted_gpu)
        return False

    def proved(self, report: Report) -> Report:
        """The report with what is proven; what may wait and does is a wait from now on."""
        findings = []
        for each in report.findings:
            answers = self._answers.get(_site_of(each.event), [])
            proof = PROVEN if answers and all(answers) else NOT_PROVEN
            event = each.event
            if proof == PROVEN and event.verdict is Verdict.CONDITIONAL:
                event = replace(event, verdict=Verdict.SYNC, why=_WHY)
            findings.append(replace(each, event=event, proof=proof))
        return Report.of(
            findings,
            tier=report.tier,
            note=report.note,
            seconds=report.seconds,
            allowed=report.allowed,
            lost=report.lost,
            failed=report.failed,
        )

    def _before(self, place: Place) -> None:
        import torch

        if not self._left[place] or not _ready():
            return
        self._left[place] -= 1
        if place in self._ms and not any(site[0] == place for site in self._answers):
            self._ms[place] = min(2 * self._ms[place], _LONGEST_MS)
        milliseconds = self._ms.setdefault(place, _SHORTEST_MS)
        with _runtime.OwnCalls():
            Spin(torch.cuda.current_stream()).start(milliseconds)
        mark = getattr(session.tier, "note_scope", None)
        if mark is not None:
            mark()


def _ready() -> bool:
    """Whether a kernel may be queued here: not before CUDA is used, nor into a graph."""
    import torch

    return torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing()


def _site_of(event: Event) -> Site:
    frame = event.stack[0]
    return (frame.file, frame.line), event.api
