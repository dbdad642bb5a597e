"""A report in SARIF 2.1.0 (OASIS standard), the format in which code hosts accept warnings."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from syncfree._version import __version__
from syncfree.detector.findings import FORWARD_NOT_KEPT, Finding, Frame, Verdict
from syncfree.detector.places import installed_name
from syncfree.detector.text import cost

if TYPE_CHECKING:
    from syncfree.detector.report import Report

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)

_ROOT = "SRCROOT"
_LEVELS = {Verdict.SYNC: "warning", Verdict.POLL: "warning", Verdict.CONDITIONAL: "note"}


def as_sarif(report: Report, root: Path) -> dict[str, Any]:
    """A log with one run, and a rule for each api."""
    root = root.resolve()
    rules = list(dict.fromkeys(each.event.api for each in report.findings))
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "syncfree",
                        "semanticVersion": __version__,
                        "rules": [_rule(api, report) for api in rules],
                    }
                },
                "originalUriBaseIds": {_ROOT: {"uri": f"{root.as_uri()}/"}},
                "columnKind": "unicodeCodePoints",
                "invocations": [{"executionSuccessful": not report.failed}],
                "results": [
                    _result(each, rules.index(each.event.api), report, root)
                    for each in report.findings
                ],
            }
        ],
    }


def _rule(api: str, report: Report) -> dict[str, Any]:
    first = next(each for each in report.findings if each.event.api == api)
    return {
        "id": api,
        "shortDescription": {"text": f"The host waits for the GPU in {api}"},
        "fullDescription": {"text": first.event.why},
        "help": {"text": first.suggestion},
        "defaultConfiguration": {"level": _LEVELS[first.event.verdict]},
    }


def _result(finding: Finding, index: int, report: Report, root: Path) -> dict[str, Any]:
    event = finding.event
    text = f"{event.why} ({event.api}, {cost(finding, report)}) {finding.suggestion}"
    result = {
        "ruleId": event.api,
        "ruleIndex": index,
        "level": _LEVELS[event.verdict],
        "message": {"text": text},
        "locations": [_location(finding.frame, root)],
        "stacks": [
            {
                "message": {"text": "Python stack, innermost first"},
                "frames": [{"location": _location(frame, root)} for frame in event.stack],
            }
        ],
        # Does not change when lines are added above, so that a host recognizes an old warning.
        "partialFingerprints": {"syncfreeSite/v1": _fingerprint(finding, root)},
        "occurrenceCount": finding.count,
        "properties": {
            "verdict": event.verdict.value,
            "blockedMicroseconds": finding.blocked_us,
            "tier": report.tier,
            "operators": list(event.op_stack),
        },
    }
    if finding.known is not None:
        result["baselineState"] = "unchanged" if finding.known else "new"
    related = list(_related(finding))
    if related:
        result["relatedLocations"] = [
            {**_location(frame, root), "message": {"text": text}} for frame, text in related
        ]
    return result


def _related(finding: Finding) -> Iterator[tuple[Frame, str]]:
    """Other lines that belong to the wait, each with a description."""
    caller, forward = finding.event.caller, finding.event.forward
    if caller is not None:
        yield caller, "the line of the program that called"
    if forward is not None and forward != FORWARD_NOT_KEPT:
        yield forward, "the line of the forward pass"


def _location(frame: Frame, root: Path) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": _artifact(frame.file, root)}
    if frame.line > 0:
        physical["region"] = {"startLine": frame.line}
        if frame.source:
            physical["region"]["snippet"] = {"text": frame.source}
    return {
        "physicalLocation": physical,
        "logicalLocations": [{"fullyQualifiedName": frame.function, "kind": "function"}],
    }


def _artifact(file: str, root: Path) -> dict[str, str]:
    path = Path(file)
    if not path.is_absolute():  # "<stdin>", a notebook's cell
        return {"uri": quote(file)}
    if path.is_relative_to(root):
        return {"uri": quote(path.relative_to(root).as_posix()), "uriBaseId": _ROOT}
    return {"uri": path.as_uri()}


def _fingerprint(finding: Finding, root: Path) -> str:
    place = installed_name(finding.file) or _artifact(finding.file, root)["uri"]
    parts = [place, finding.function, finding.event.api, finding.source]
    caller = finding.event.caller
    if caller is not None:
        parts += [_artifact(caller.file, root)["uri"], caller.function, caller.source]
    forward = finding.event.forward
    if forward is not None:  # one `.backward()` line may wait for several forward lines
        parts += [forward.function, forward.source]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
