"""Proves findings: a line that waits cannot get past a GPU that is kept busy.

Before a line that was found to wait, a spinning kernel is queued with a mark behind it. A call of
that line that finds the mark pending and returns only after it was reached has waited; a call that
returns earlier has not. The kernel ends by itself, so that the program goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from syncfree import _runtime
from syncfree.detector.findings import Event, Finding, Verdict
from syncfree.detector.line_hooks import BeforeLines, Place
from syncfree.detector.report import Report
from syncfree.detector.session import scope_changed
from syncfree.detector.tier3.judging import OUTLASTED
from syncfree.detector.tier3.spin import Spin

PROVEN, NOT_PROVEN = "proven", "not proven"
_WHY = "Behind a spinning kernel it did not return before the GPU was done."

# How often each line is tried, and how long each kernel spins. Each try is longer, because the host
# may reach the call too late, and a call that takes long by itself outlasts a short kernel.
_TRIES_MS = (50.0, 100.0, 200.0)

# A line, the api that it called, and whether the finding was conditional, or counted only because
# the GPU was busy.
Site = tuple[Place, str, bool]


class Prover:
    """Tries the findings of a report while the program runs again inside of a tier 3 region.

    Args:
        findings: What to prove.
    """

    def __init__(self, findings: Iterable[Finding]) -> None:
        counts: dict[Place, int] = {}
        self._sites: set[Site] = set()
        for each in findings:
            site = _site_of(each.event)
            self._sites.add(site)
            counts[site[0]] = max(each.count, counts.get(site[0], 0))
        self._left = {place: _tries(count) for place, count in counts.items()}
        self._answers: dict[Site, list[bool]] = {}
        self._hooks = BeforeLines(counts, self._before)

    def __enter__(self) -> Prover:
        self._hooks.__enter__()
        return self

    def __exit__(self, *_: Any) -> None:
        self._hooks.__exit__()

    def take(self, event: Event) -> bool:
        """Gets every event, by being passed as a pattern of ``allow=`` that allows nothing."""
        site = _site_of(event)
        if site in self._sites and event.outlasted_gpu is not None:
            self._answers.setdefault(site, []).append(event.outlasted_gpu)
        return False

    def proved(self, report: Report) -> Report:
        """The report with the proofs; a conditional finding that is proven becomes a wait."""
        findings = []
        for each in report.findings:
            answers = self._answers.get(_site_of(each.event), [])
            proof = PROVEN if answers and all(answers) else NOT_PROVEN
            event = each.event
            if proof == PROVEN and event.verdict is Verdict.CONDITIONAL:
                event = replace(event, verdict=Verdict.SYNC, why=_WHY)
            findings.append(replace(each, event=event, proof=proof))
        return report.with_findings(findings)

    def _before(self, place: Place) -> None:
        import torch

        if not _ready():
            return
        milliseconds = next(self._left[place], None)  # several threads may come at once
        if milliseconds is None:
            return
        with _runtime.OwnCalls():
            Spin(torch.cuda.current_stream()).start(milliseconds)
        scope_changed()  # puts the mark


def _tries(count: int) -> Iterator[float]:
    """Milliseconds of each try; a line that runs once or twice begins with a long one."""
    first = _TRIES_MS[max(0, len(_TRIES_MS) - count)]
    return iter([max(first, each) for each in _TRIES_MS])


def _ready() -> bool:
    """Whether a kernel may be queued: not before CUDA is initialized, nor into a graph."""
    import torch

    return torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing()


def _site_of(event: Event) -> Site:
    frame = event.stack[0]
    may_wait = event.verdict is Verdict.CONDITIONAL or event.why == OUTLASTED
    return (frame.file, frame.line), event.api, may_wait
