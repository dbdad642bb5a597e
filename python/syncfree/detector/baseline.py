"""A ratchet: known sites pass, new ones fail, vanished ones are reported.

A site is identified by its file, function and api, not by its line number, so that edits above it
change nothing. Several sites with the same function and api are told apart by the text of their
lines; if that was edited, as many pass as are known. For a wait inside of a package or the standard
library, the site includes the program's line that led to it, which is treated in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from syncfree.detector.findings import Finding, Line, Verdict, line_of
from syncfree.detector.places import installed_name
from syncfree.detector.report import VERSION, check_version
from syncfree.errors import DetectorError

Key = tuple[str, ...]
_CALLER = ("file", "function", "source")
_DOCUMENT = 'a JSON object with a "version" and a list of "findings"'
_FINDING = "findings with the texts file, function, api and source"


@dataclass(frozen=True, order=True)
class KnownSite:
    """A wait that is accepted for now.

    Args:
        file: Relative to the root of the project; for packages it begins with `site-packages`, for
            the standard library with `stdlib`.
        function: Qualified name.
        api: The call that waited.
        source: Text of the line.
        caller: File, function and text of the program's line that led to a wait inside of a package
            or the standard library; empty for other waits. If it is empty although the wait is
            inside of a package, the site matches the wait of any caller.
        tests: Names of the tests that reach it; empty outside of pytest.
    """

    file: str
    function: str
    api: str
    source: str
    caller: tuple[str, ...] = ()
    tests: tuple[str, ...] = field(default=(), compare=False)

    @property
    def key(self) -> Key:
        """The part that stays the same when the line, or the calling line, is edited."""
        return self.file, self.function, self.api, *self.caller[:2]

    def without_caller(self) -> KnownSite:
        """The site of a baseline entry that has no caller, and so matches any caller."""
        return replace(self, caller=())

    def __str__(self) -> str:
        text = f"{self.file} in {self.function}: {self.source or self.api}"
        if not self.caller:
            return text
        file, function, source = self.caller
        return f"{text}, called from {file} in {function}: {source}"


@dataclass
class Difference:
    """The result of a comparison of findings with a baseline."""

    known: list[Finding]
    new: list[Finding]
    vanished: list[KnownSite]


class Baseline:
    """The known sites of a project.

    Args:
        sites: The known sites.
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
        """A baseline of these findings, without the conditional ones."""
        return cls((site(same[0], root) for same in _by_line(findings)), root)

    @classmethod
    def read(cls, file: Path, root: Path, *, written_by: str = "--baseline-update") -> Baseline:
        """Reads a baseline file, or a JSON report of an earlier run.

        Args:
            file: The file.
            root: The folder that files are relative to.
            written_by: The option that writes it, for the error if there is no file.

        Raises:
            DetectorError: There is no such file, or it is neither a baseline nor a report.
        """
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DetectorError(
                f"there is no baseline {file}: run once with {written_by} to write it"
            ) from None
        except OSError as error:
            raise DetectorError(f"cannot read the baseline {file}: {error.strerror}") from None
        except ValueError as error:
            raise _no_baseline(file, f"no JSON: {error}") from None
        if isinstance(document, dict) and "version" in document:
            check_version(document["version"], str(file))
        else:
            raise _no_baseline(file, f"expected {_DOCUMENT}, but got {document!r:.80}")
        if not isinstance(document.get("findings"), list):
            raise _no_baseline(file, f"expected {_DOCUMENT}, but there is no such list")
        for each in document["findings"]:
            if not _is_site(each):
                raise _no_baseline(file, f"expected {_FINDING}, but got {each!r:.80}")
        return cls((_site_from_json(each, root) for each in _known_lines(document)), root)

    def write(self, file: Path) -> None:
        """Writes the file, sorted, so that its changes are easy to review.

        Raises:
            DetectorError: The file cannot be written.
        """
        findings = [
            {"file": each.file, "function": each.function, "api": each.api, "source": each.source}
            | ({"caller": dict(zip(_CALLER, each.caller, strict=True))} if each.caller else {})
            | ({"tests": sorted(each.tests)} if each.tests else {})
            for each in self.sites
        ]
        document = {"version": VERSION, "findings": findings}
        try:
            file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise DetectorError(f"cannot write the baseline {file}: {error.strerror}") from None

    def compare(self, findings: Iterable[Finding]) -> Difference:
        """Which findings are known, which are new, and which known sites have vanished."""
        known: list[Finding] = []
        unseen = list(self.sites)
        of_any_caller = {each for each in self.sites if not each.caller}
        seen: set[KnownSite] = set()
        rest: list[list[Finding]] = []
        for same in _by_line(findings):
            here = site(same[0], self.root)
            if here in unseen:
                unseen.remove(here)
                known += same
            elif here.caller and here.without_caller() in of_any_caller:
                seen.add(here.without_caller())
                known += same
            else:
                rest.append(same)
        unseen = [each for each in unseen if each not in seen]
        new: list[Finding] = []
        for same in rest:
            key = site(same[0], self.root).key
            edited = [entry for entry in unseen if entry.key == key]
            if edited:
                unseen.remove(edited[0])
            (known if edited else new).extend(same)
        return Difference(known, new, unseen)


def _by_line(findings: Iterable[Finding]) -> Iterable[list[Finding]]:
    """The findings that wait, grouped by line, because the forward lines differ between runs."""
    lines: dict[Line, list[Finding]] = {}
    for each in findings:
        if each.waits:
            lines.setdefault(line_of(each.event), []).append(each)
    return lines.values()


def site(finding: Finding, root: Path, tests: tuple[str, ...] = ()) -> KnownSite:
    """The site of a finding."""
    caller = finding.event.caller
    return KnownSite(
        portable(finding.file, root),
        finding.function,
        finding.event.api,
        finding.source,
        () if caller is None else (portable(caller.file, root), caller.function, caller.source),
        tests,
    )


def portable(file: str, root: Path) -> str:
    """A name of a file that is the same on every machine."""
    installed = installed_name(file)
    if installed:
        return installed
    path = Path(file)
    if path.is_absolute() and path.is_relative_to(root.resolve()):
        return path.relative_to(root.resolve()).as_posix()
    return file


def _known_lines(document: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """The entries that wait: of a report one for each line, of a baseline all."""
    lines: dict[Any, Mapping[str, Any]] = {}
    for number, each in enumerate(document["findings"]):
        if each.get("verdict") != Verdict.CONDITIONAL.value:
            lines.setdefault(_line_in(each) if "line" in each else number, each)
    return lines.values()


def _line_in(values: Mapping[str, Any]) -> tuple[Any, ...]:
    """The key of a line: equal for all findings of a report at that line."""
    return values["file"], values["line"], values["api"], str(_caller_in(values))


def _caller_in(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return values.get("caller") or {}


def _is_site(values: Any) -> bool:
    if not isinstance(values, dict) or not isinstance(_caller_in(values), dict):
        return False
    texts = [values.get(name) for name in ("file", "function", "api", "source")]
    caller = _caller_in(values)
    texts += [caller.get(name) for name in _CALLER if caller]
    well_typed = isinstance(values.get("line", 0), int) and isinstance(
        values.get("tests", []), list
    )
    return well_typed and all(isinstance(text, str) for text in texts)


def _no_baseline(file: Path, problem: str) -> DetectorError:
    return DetectorError(f"{file} is no baseline of the sync detector: {problem}")


def _site_from_json(values: Mapping[str, Any], root: Path) -> KnownSite:
    caller = _caller_in(values)
    return KnownSite(
        portable(values["file"], root),
        values["function"],
        values["api"],
        values["source"],
        (portable(caller["file"], root), caller["function"], caller["source"]) if caller else (),
        tuple(values.get("tests", ())),
    )
