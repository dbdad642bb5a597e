"""A ratchet: sites that are known pass, new ones fail, vanished ones are reported.

A site is known by its file, function and api, not by its line number, so that edits above it change
nothing. Several sites of one function and api are told apart by their text; where that was edited,
their number decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syncfree.detector.findings import Finding, Line, Verdict, line_of
from syncfree.detector.report import VERSION, check_version
from syncfree.errors import DetectorError

Key = tuple[str, str, str]


@dataclass(frozen=True, order=True)
class KnownSite:
    """A wait that is accepted for now.

    Args:
        file: Relative to the root of the project; for installed packages from `site-packages` on.
        function: Qualified name.
        api: What waited.
        source: Text of the line.
        tests: Names of the tests that reach it; empty outside of pytest.
    """

    file: str
    function: str
    api: str
    source: str
    tests: tuple[str, ...] = field(default=(), compare=False)

    @property
    def key(self) -> Key:
        """What stays the same when the line is edited."""
        return self.file, self.function, self.api

    def __str__(self) -> str:
        return f"{self.file} in {self.function}: {self.source or self.api}"


@dataclass
class Difference:
    """Findings beside a baseline."""

    known: list[Finding]
    new: list[Finding]
    vanished: list[KnownSite]


class Baseline:
    """The sites that a project knows of.

    Args:
        sites: The known ones.
        root: The folder that files are relative to.

    Example:
        >>> from pathlib import Path
        >>> from syncfree.detector.baseline import Baseline
        >>> Baseline([], Path("/project")).compare([]).new
        []
    """

    def __init__(self, sites: Iterable[KnownSite], root: Path) -> None:
        self.sites = sorted(sites)
        self.root = root

    @classmethod
    def of(cls, findings: Iterable[Finding], root: Path) -> Baseline:
        """A baseline that knows these findings, without those that do not count."""
        return cls((site(same[0], root) for same in _by_line(findings)), root)

    @classmethod
    def read(cls, file: Path, root: Path, *, written_by: str = "--baseline-update") -> Baseline:
        """Reads a baseline file, or a JSON report of an earlier run.

        Args:
            file: The file.
            root: The folder that files are relative to.
            written_by: The option that writes it, which the error names where there is none.

        Raises:
            DetectorError: There is no such file, or it is neither.
        """
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            check_version(document["version"])
            sites = [_site_from_json(each, root) for each in _known_lines(document)]
        except FileNotFoundError:
            raise DetectorError(
                f"there is no baseline {file}: run once with {written_by} to write it"
            ) from None
        except OSError as error:
            raise DetectorError(f"cannot read the baseline {file}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DetectorError(
                f"{file} is no baseline of the sync detector: {type(error).__name__}: {error}"
            ) from None
        return cls(sites, root)

    def write(self, file: Path) -> None:
        """Writes the file, sorted, so that a change of it is easy to review.

        Raises:
            DetectorError: It cannot be written.
        """
        findings = [
            {"file": each.file, "function": each.function, "api": each.api, "source": each.source}
            | ({"tests": sorted(each.tests)} if each.tests else {})
            for each in self.sites
        ]
        document = {"version": VERSION, "findings": findings}
        try:
            file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise DetectorError(f"cannot write the baseline {file}: {error.strerror}") from None

    def compare(self, findings: Iterable[Finding]) -> Difference:
        """Which findings are known and which are new, and which known sites did not show."""
        known: list[Finding] = []
        unseen = list(self.sites)
        rest: list[list[Finding]] = []
        for same in _by_line(findings):
            here = site(same[0], self.root)
            if here in unseen:
                unseen.remove(here)
                known += same
            else:
                rest.append(same)
        new: list[Finding] = []
        for same in rest:
            key = site(same[0], self.root).key
            edited = [entry for entry in unseen if entry.key == key]
            if edited:
                unseen.remove(edited[0])
            (known if edited else new).extend(same)
        return Difference(known, new, unseen)


def _by_line(findings: Iterable[Finding]) -> Iterable[list[Finding]]:
    """Those that count, line by line: which forward lines are known differs from run to run."""
    lines: dict[Line, list[Finding]] = {}
    for each in findings:
        if each.counts:
            lines.setdefault(line_of(each.event), []).append(each)
    return lines.values()


def site(finding: Finding, root: Path, tests: tuple[str, ...] = ()) -> KnownSite:
    """How a baseline names the place of a finding."""
    return KnownSite(
        portable(finding.file, root), finding.function, finding.event.api, finding.source, tests
    )


def portable(file: str, root: Path) -> str:
    """A file's name that is the same on another machine."""
    path = Path(file)
    parts = path.parts
    if "site-packages" in parts:
        last = len(parts) - 1 - parts[::-1].index("site-packages")
        return Path(*parts[last:]).as_posix()
    if path.is_absolute() and path.is_relative_to(root.resolve()):
        return path.relative_to(root.resolve()).as_posix()
    return file


def _known_lines(document: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Of a report what counts, once for a line; each site of a baseline stands for itself."""
    lines: dict[Any, Mapping[str, Any]] = {}
    for number, each in enumerate(document["findings"]):
        if each.get("verdict") != Verdict.CONDITIONAL.value:
            key = (each["file"], each["line"], each["api"]) if "line" in each else number
            lines.setdefault(key, each)
    return lines.values()


def _site_from_json(values: Mapping[str, Any], root: Path) -> KnownSite:
    return KnownSite(
        portable(values["file"], root),
        values["function"],
        values["api"],
        values["source"],
        tuple(values.get("tests", ())),
    )
