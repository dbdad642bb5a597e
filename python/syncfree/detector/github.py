"""A report as workflow commands, which GitHub shows beside the lines of a pull request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from syncfree.detector.text import cost

if TYPE_CHECKING:
    from syncfree.detector.report import Report


def as_github(report: Report, root: Path) -> Iterator[str]:
    """An error for each line that waits; for a wait inside of a package, at the calling line."""
    for each in report.findings:
        if not each.counts:
            continue
        place = each.event.caller or each.frame
        file = Path(place.file)
        if file.is_relative_to(root):
            file = file.relative_to(root)
        where = f"file={_property(file.as_posix())},line={place.line}"
        title = _property(f"The host waits for the GPU ({each.event.api}, {cost(each, report)})")
        yield f"::error {where},title={title}::{_data(f'{each.event.why} {each.suggestion}')}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
