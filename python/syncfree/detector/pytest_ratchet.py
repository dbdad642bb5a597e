"""`--sync-baseline`: known waits pass, new ones fail, vanished ones are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from syncfree.detector.baseline import Baseline, KnownSite
    from syncfree.detector.report import Report

# The findings of a test, for its report, which xdist sends to the controller.
FOUND = pytest.StashKey[list[dict[str, Any]]]()


class Ratchet:
    """The baseline of a session: the known sites, and the findings of the session's tests."""

    def __init__(self, file: Path, root: Path, update: bool) -> None:
        self._file = file
        self._root = root
        self._update = update
        self._known: Baseline | None = None
        self._sites: dict[tuple[Any, ...], KnownSite] = {}
        self._tests: set[str] = set()
        self._incomplete: set[str] = set()
        self._written = ""

    def check(self) -> None:
        """Refuses, before any test runs, a file that cannot be read or written.

        Raises:
            pytest.UsageError: The file is missing, is not a baseline, or cannot be written.
        """
        from syncfree._output_places import why_no_file
        from syncfree.errors import DetectorError

        if self._update and (problem := why_no_file(self._file)):
            raise pytest.UsageError(f"--sync-baseline: {problem}")
        try:
            self._baseline()
        except DetectorError as error:
            raise pytest.UsageError(f"--sync-baseline: {error}") from None

    def judge(self, item: pytest.Item, report: Report) -> Report:
        """The report with only its new findings; notes all of them for the end of the session."""
        from syncfree.detector.baseline import site

        noted = item.stash.setdefault(FOUND, [])
        for each in report.findings:
            if each.counts:
                here = site(each, self._root)
                noted.append(
                    {
                        "file": here.file,
                        "line": each.line,
                        "function": here.function,
                        "api": here.api,
                        "source": here.source,
                        "caller": here.caller,
                        "caller_line": each.event.caller.line if each.event.caller else 0,
                    }
                )
        if self._update:
            return report.without(report.findings)
        return report.without(self._baseline().compare(report.findings).known)

    def _baseline(self) -> Baseline:
        from syncfree.detector.baseline import Baseline

        if self._known is None:
            if self._update and not self._file.exists():
                self._known = Baseline([], self._root)
            else:
                self._known = Baseline.read(
                    self._file, self._root, written_by="--sync-baseline-update"
                )
        return self._known

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: Any) -> None:
        """Collects the findings of the tests, and the tests that did not pass."""
        test = report.nodeid.partition("[")[0]
        if report.outcome != "passed":
            self._incomplete.add(test)
        found = getattr(report, "syncfree_findings", None)
        if found is None:
            return
        from syncfree.detector.baseline import KnownSite

        self._tests.add(test)
        for each in found:
            key = tuple(each[name] for name in ("file", "line", "api", "caller", "caller_line"))
            before = self._sites[key].tests if key in self._sites else ()
            values = {name: value for name, value in each.items() if "line" not in name}
            tests = tuple(sorted({*before, test}))
            self._sites[key] = KnownSite(**values, tests=tests)

    def _out_of_reach(self) -> list[KnownSite]:
        """Known sites of which this session cannot tell whether they vanished, so they are kept.

        Only tests that are not in this session reach them, or a test that reaches them did not
        pass.
        """
        to_their_end = self._tests - self._incomplete
        return [
            each
            for each in self._baseline().sites
            if each.tests
            and (self._incomplete.intersection(each.tests) or to_their_end.isdisjoint(each.tests))
        ]

    def _updated(self) -> list[KnownSite]:
        """The sites that were found, and the known ones that are out of reach, each once."""
        found = list(self._sites.values())
        kept = self._out_of_reach()
        merged = [_with_tests_of(each, kept) for each in found]
        for each in kept:
            if each in found:
                found.remove(each)
            else:
                merged.append(each)
        return merged

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Writes the baseline; if that is impossible, the session fails."""
        if not self._update or session.exitstatus == pytest.ExitCode.INTERNAL_ERROR:
            return
        from syncfree.detector.baseline import Baseline
        from syncfree.detector.text import plural
        from syncfree.errors import DetectorError

        sites = self._updated()
        try:
            Baseline(sites, self._root).write(self._file)
        except DetectorError as error:
            self._written = f"--sync-baseline-update: {error}"
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
        else:
            self._written = f"{plural(len(sites), 'known wait')} written to {self._file}"

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Says what was written, or which waits of the baseline have vanished."""
        if self._written:
            terminalreporter.write_sep("-", "waits for the GPU")
            terminalreporter.write_line(self._written)
        if self._update or not self._tests:
            return
        out_of_reach = self._out_of_reach()
        rest = [each for each in self._baseline().sites if each not in out_of_reach]
        vanished = _not_among(rest, list(self._sites.values()))
        if vanished:
            terminalreporter.write_sep("-", "waits for the GPU")
        for site in vanished:
            terminalreporter.write_line(
                f"vanished, --sync-baseline-update takes it out of {self._file.name}: {site}"
            )


def _with_tests_of(site: KnownSite, known: list[KnownSite]) -> KnownSite:
    tests = {name for each in known if each == site for name in each.tests}
    return replace(site, tests=tuple(sorted({*site.tests, *tests})))


def _not_among(known: list[KnownSite], seen: list[KnownSite]) -> list[KnownSite]:
    rest = list(seen)
    missing = []
    for each in known:
        same = [other for other in rest if other == each] or [
            other for other in rest if other.key == each.key
        ]
        if same:
            rest.remove(same[0])
        elif any(other.without_caller() == each for other in seen):
            continue  # the known site matches any caller
        else:
            missing.append(each)
    return missing
