"""A report as plain text, which needs no package, for errors and logs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from syncfree.detector.findings import FORWARD_NOT_KEPT, Finding, Verdict
from syncfree.detector.pragmas import has_empty_pragma

if TYPE_CHECKING:
    from syncfree.detector.report import Report

_SHOWN = 20
MEANT = (
    'A wait that is meant: `# sync-ok: reason` on its line, or `with syncfree.allow_sync("reason")`'
    " around it."
)
IDLE = (
    "nothing was judged: no operation on a CUDA tensor ran. Without a GPU the detector follows the "
    'tensors that the code inside puts on "cuda". Choose the device there, where '
    "torch.cuda.is_available() is True"
)


def as_text(report: Report, most: int | None = _SHOWN) -> str:
    """A block of lines for each finding, the most costly first, and a summary.

    Args:
        report: The report.
        most: At most how many findings are shown; None for all.
    """
    found = report.shown
    lines = [line for each in found[:most] for line in _block(each, report)]
    if most is not None and len(found) > most:
        more = plural(len(found) - most, "finding")
        lines.append(f"  ... and {more} more, which the JSON report has")
    if any(each.counts for each in found):
        lines.append(MEANT)
    return "\n".join([summary(report), *lines])


def summary(report: Report) -> str:
    """One sentence: how many waits at how many lines, what was allowed, which tier looked."""
    guilty = [each for each in report.findings if each.counts]
    known = [each for each in report.findings if each.known]
    if guilty:
        text = f"the host waits {plural(report.count, 'time')} at {_lines(guilty)}"
    elif known:
        text = "the host waits at no new line"
    else:
        text = "no wait was found" if report.failed else "the host never waits"
        if report.idle and not report.failed:
            text = IDLE
    if report.failed:
        text += " before the program failed: what it did not get to is not judged"
    if known:
        waits = plural(report.known_count, "known wait")
        text += f", {waits} at {_lines(known)} of the baseline left out"
    maybe = sum(each.count for each in report.shown if not each.waits)
    if maybe:
        text += f", {plural(maybe, 'call')} may wait (not counted)"
    for reason, count in report.allowed.items():
        text += f", {count} allowed ({reason})"
    if report.lost:
        text += f", {plural(report.lost, 'call')} of the driver lost, as too many came at once"
    return f"{text} [{report.note or f'tier {report.tier}'}]"


def _lines(findings: Iterable[Finding]) -> str:
    """How many lines they are at: one line may have a finding for each forward line and api."""
    return plural(len({(each.frame, each.event.caller) for each in findings}), "line")


def plural(count: int, noun: str) -> str:
    """A number with its noun.

    Example:
        >>> from syncfree.detector.text import plural
        >>> plural(1, "line"), plural(2, "line")
        ('1 line', '2 lines')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


def duration(microseconds: float) -> str:
    """A time with three digits and its unit.

    Example:
        >>> from syncfree.detector.text import duration
        >>> duration(12.34), duration(4567.0), duration(2e6)
        ('12.3 µs', '4.57 ms', '2 s')
    """
    for unit, scale in (("µs", 1.0), ("ms", 1e3)):
        if microseconds < 999.5 * scale:
            return f"{microseconds / scale:.3g} {unit}"
    return f"{microseconds / 1e6:.3g} s"


def share(finding: Finding, report: Report) -> str:
    """The share of the wall time that was lost here; empty if it is not known."""
    if finding.blocked_us is None or not report.seconds:
        return ""
    return f"{finding.blocked_us / report.seconds / 1e6:.1%}"


def cost(finding: Finding, report: Report) -> str:
    """Count, time lost and share of the wall time, as far as they are known."""
    parts = [f"{finding.count}x"]
    if finding.blocked_us is not None:
        parts.append(duration(finding.blocked_us))
    part = share(finding, report)
    if part:
        parts.append(f"{part} of the wall time")
    if finding.proof:
        parts.append(finding.proof)
    return ", ".join(parts)


def details(finding: Finding) -> list[str]:
    """The lines below the place of a finding: its source, the reason, and what led to it."""
    lines = [each for each in (finding.frame.excerpt, finding.event.why) if each]
    caller = finding.event.caller
    if caller is not None:
        lines.append(f"called from {caller} in {caller.function}: {caller.excerpt}")
    forward = finding.event.forward
    if forward == FORWARD_NOT_KEPT:
        lines.append("backward of a line that is no longer kept, or that ran before the region")
    elif forward is not None:
        lines.append(f"backward of {forward}: {forward.excerpt}")
    if finding.event.op_stack not in ((), (finding.event.api,)):
        lines.append(f"inside of {' < '.join(finding.event.op_stack)}")
    reader = finding.event.reader
    if reader is not None:
        lines.append(f"inside of torch: {reader} in {reader.function}: {reader.excerpt}")
    if finding.event.library is not None:
        lines.append(f"waits inside of {finding.event.library}")
    if finding.event.one_time and finding.event.direction != "h2d":  # whose suggestion says it
        lines.append("seen once, the first time that this line ran")
    return lines


def _block(finding: Finding, report: Report) -> list[str]:
    kind = "" if finding.event.verdict is Verdict.SYNC else f" ({finding.event.verdict.value})"
    place = f"  {finding.frame} in {finding.function}: {finding.event.api}{kind}"
    lines = [f"{place}, {cost(finding, report)}", *details(finding)]
    if finding.counts or finding.event.direction == "h2d":
        lines.append(finding.suggestion)
    if has_empty_pragma(finding.file, finding.line):
        lines.append("`# sync-ok` allows nothing without a reason: `# sync-ok: reason`.")
    return [lines[0], *(f"      {line}" for line in lines[1:])]
