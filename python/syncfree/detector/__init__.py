"""Finds the lines that make the host wait for the GPU. Importing it imports no torch."""

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
