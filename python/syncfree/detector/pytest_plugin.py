"""pytest plugin `syncfree`: tests that fail where the host waits for the GPU.

pytest loads it at its start in every project, so it imports neither torch nor the detector before a
test asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from syncfree.detector.allow import Pattern
    from syncfree.detector.baseline import Baseline, KnownSite
    from syncfree.detector.report import Report
    from syncfree.errors import SyncError

_OPTIONS = ("max", "allow", "warmup")
_ratchet = pytest.StashKey["Ratchet"]()
_found = pytest.StashKey[list[dict[str, Any]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options of the baseline and of the tier."""
    group = parser.getgroup("syncfree", "waits for the GPU")
    group.addoption(
        "--sync-baseline",
        metavar="FILE",
        type=Path,
        help="waits that are known pass, new ones fail, vanished ones are reported",
    )
    group.addoption(
        "--sync-baseline-update",
        action="store_true",
        help="write the baseline file: waits found by the tests that run pass",
    )
    group.addoption(
        "--sync-tier",
        choices=("auto", "0", "2", "3"),
        default="auto",
        help="how waits are found (default: auto, which is 0 without a GPU)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker and reads the baseline."""
    config.addinivalue_line(
        "markers",
        "no_sync(max=0, allow=[], warmup=0): the test fails if it makes the host wait for the GPU "
        "more than `max` times; it runs `warmup` times before",
    )
    file: Path | None = config.getoption("--sync-baseline")
    update: bool = config.getoption("--sync-baseline-update")
    if file is None:
        if update:
            raise pytest.UsageError("--sync-baseline-update needs --sync-baseline FILE")
        return
    ratchet = Ratchet(file.absolute(), config.rootpath, update)
    ratchet.check()
    config.stash[_ratchet] = ratchet
    # With xdist every process compares, and the first one hears of all tests and sums up.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(ratchet, "syncfree-ratchet")


@pytest.fixture
def no_sync(request: pytest.FixtureRequest) -> Callable[..., Guard]:
    """A maker of guards, which take ``max``, ``allow`` and ``warmup``, for `with` blocks.

    A guard may be entered again and again; its first `warmup` blocks are not judged.
    """

    def make(max: int = 0, allow: Sequence[Pattern] = (), warmup: int = 0) -> Guard:
        __tracebackhide__ = True
        return Guard(request.node, max, allow, warmup)

    return make


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Runs tests with the marker `no_sync` inside of a guard."""
    marker = pyfuncitem.get_closest_marker("no_sync")
    if marker is None:
        return (yield)
    guard = _guard_of(marker, pyfuncitem)
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    for _ in range(guard.warmup):
        with guard:
            pyfuncitem.obj(**arguments)
    guard.raises = False
    with guard:
        result = yield
    if guard.failure is not None:
        # The report says where; a traceback would lead into this plugin.
        pytest.fail(str(guard.failure), pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Puts what a test found on its report, which xdist brings to the first process."""
    report = yield
    if report.when == "call" and _found in item.stash:
        report.syncfree_findings = item.stash[_found]
    return report


def _guard_of(marker: pytest.Mark, item: pytest.Function) -> Guard:
    if marker.args or set(marker.kwargs) - set(_OPTIONS):
        given = [*map(repr, marker.args), *(f"{key}={it!r}" for key, it in marker.kwargs.items())]
        problem = f"it takes {', '.join(_OPTIONS)} by name, but got {', '.join(given)}"
    else:
        try:
            return Guard(
                item,
                marker.kwargs.get("max", 0),
                marker.kwargs.get("allow", ()),
                marker.kwargs.get("warmup", 0),
            )
        except (TypeError, ValueError) as error:
            problem = str(error)
    pytest.fail(f"{item.nodeid}: the marker no_sync: {problem}", pytrace=False)


class Guard:
    """A block of a test that must not make the host wait.

    Args:
        item: The test.
        max: How many waits are accepted.
        allow: As in :func:`syncfree.detect_syncs`.
        warmup: How many blocks are not judged.

    Raises:
        TypeError: `allow` is no list of patterns.
        ValueError: `max` or `warmup` is no count.
    """

    def __init__(self, item: pytest.Item, max: int, allow: Sequence[Pattern], warmup: int) -> None:
        from syncfree.detector import set_up
        from syncfree.detector.regions import detect_syncs
        from syncfree.detector.tiers import BY_NAME

        __tracebackhide__ = True
        set_up.begin()
        for name, value in (("max", max), ("warmup", warmup)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"{name} is a count of at least 0, but got {value!r}")
        tier = BY_NAME[item.config.getoption("--sync-tier")]
        self._region = detect_syncs(max_syncs=max, allow=allow, tier=tier)
        self._item = item
        self._max = max
        self.warmup = self._left = warmup
        self.raises = True
        self.failure: SyncError | None = None

    def __enter__(self) -> Report:
        from syncfree.detector.tiers import TierUnavailableError

        try:
            return self._region.__enter__()
        except TierUnavailableError as error:
            # Of the machine, not of the test: a traceback would lead into this plugin.
            reason = str(error)
        pytest.fail(f"--sync-tier: {reason}", pytrace=False)

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self._region.__exit__(kind, error, traceback)
        if self._left:
            self._left -= 1
            return
        report = self._region.report
        ratchet = self._item.config.stash.get(_ratchet, None)
        if ratchet is not None:
            report = ratchet.judge(self._item, report)
        if error is None and report.count > self._max:
            from syncfree.errors import SyncError

            __tracebackhide__ = True
            self.failure = SyncError(f"at most {self._max} allowed, but {report}", report)
            if self.raises:
                raise self.failure


class Ratchet:
    """The baseline of a session: what it knows, and what the session's tests found."""

    def __init__(self, file: Path, root: Path, update: bool) -> None:
        self._file = file
        self._root = root
        self._update = update
        self._known: Baseline | None = None
        self._sites: dict[tuple[Any, ...], KnownSite] = {}
        self._tests: set[str] = set()

    def check(self) -> None:
        """Refuses, before any test runs, a file that cannot be read or written.

        Raises:
            pytest.UsageError: The file is missing or no baseline, or there is no such folder.
        """
        from syncfree.errors import DetectorError

        if self._update and not self._file.parent.is_dir():
            raise pytest.UsageError(f"--sync-baseline: there is no folder {self._file.parent}")
        try:
            self._baseline()
        except DetectorError as error:
            raise pytest.UsageError(f"--sync-baseline: {error}") from None

    def judge(self, item: pytest.Item, report: Report) -> Report:
        """What is new in a report; notes all of it for the end of the session."""
        from syncfree.detector.baseline import site

        noted = item.stash.setdefault(_found, [])
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
        """Adds up what the tests found."""
        found = getattr(report, "syncfree_findings", None)
        if found is None:
            return
        from syncfree.detector.baseline import KnownSite

        test = report.nodeid.partition("[")[0]
        self._tests.add(test)
        for each in found:
            key = tuple(each[name] for name in ("file", "line", "api", "caller", "caller_line"))
            before = self._sites[key].tests if key in self._sites else ()
            values = {name: value for name, value in each.items() if "line" not in name}
            tests = tuple(sorted({*before, test}))
            self._sites[key] = KnownSite(**values, tests=tests)

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Writes the baseline, or says which of its waits have vanished."""
        if not self._tests and not self._update:
            return
        from syncfree.detector.baseline import Baseline
        from syncfree.detector.text import plural

        # What only tests outside of this session reach is neither vanished nor taken out.
        of_others = [
            each
            for each in self._baseline().sites
            if each.tests and not self._tests.intersection(each.tests)
        ]
        if self._update:
            sites = [*self._sites.values(), *of_others]
            Baseline(sites, self._root).write(self._file)
            terminalreporter.write_sep("-", "waits for the GPU")
            known = plural(len(sites), "known wait")
            terminalreporter.write_line(f"{known} written to {self._file}")
            return
        rest = [each for each in self._baseline().sites if each not in of_others]
        vanished = _not_among(rest, list(self._sites.values()))
        if vanished:
            terminalreporter.write_sep("-", "waits for the GPU")
        for site in vanished:
            terminalreporter.write_line(
                f"vanished, --sync-baseline-update takes it out of {self._file.name}: {site}"
            )


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
            continue  # known whoever calls
        else:
            missing.append(each)
    return missing
