"""Finds the lines that make the host wait for the GPU. Importing it imports no torch.

A *tier* is a way to observe waits: 0 runs the program on the CPU with marked tensors, 2 uses
torch's sync debug mode, 3 uses CUPTI. It records each wait as an *event*, with a *verdict* that
says how sure the wait is. Events of the same line add up to a *finding*. A *region* is a block of
code whose events are reported (`detect_syncs`); the *scope* of running code is the regions that it
is inside of and the waits that it allows. A *baseline* lists the findings that a project accepts
for now, each as a *known site*, which has no line number.
"""

from syncfree.detector.allow import allow_sync
from syncfree.detector.baseline import Baseline
from syncfree.detector.findings import (
    FORWARD_NOT_KEPT,
    Event,
    Finding,
    Frame,
    Recorder,
    Verdict,
)
from syncfree.detector.guard import no_sync
from syncfree.detector.regions import Region, detect_syncs
from syncfree.detector.report import Report, merge_ranks, report_from_json

__all__ = [
    "FORWARD_NOT_KEPT",
    "Baseline",
    "Event",
    "Finding",
    "Frame",
    "Recorder",
    "Region",
    "Report",
    "Verdict",
    "allow_sync",
    "detect_syncs",
    "merge_ranks",
    "no_sync",
    "report_from_json",
]
