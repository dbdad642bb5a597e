"""pytest plugin `syncfree`: tests that fail where the host waits for the GPU.

pytest loads it at its start in every project, so it imports neither torch nor the detector before a
test asks for them.
"""

from __future__ import annotations

import functools
import inspect
import unittest
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from syncfree.detector.pytest_ratchet import FOUND, Ratchet
from syncfree.detector.pytest_setup import FIXTURE, VirtualDevice, put_first

if TYPE_CHECKING:
    from syncfree.detector.allow import Pattern
    from syncfree.detector.report import Report
    from syncfree.errors import SyncError

_OPTIONS = ("max", "allow", "warmup")
_NO_BLOCK = "the test entered no block, as `with no_sync():`, beyond warm-ups"
_ENDED = (
    "each block of the test ended with an exception, so its waits were not judged: write "
    "`with pytest.raises(...):` inside of the block"
)
_ratchet = pytest.StashKey[Ratchet]()
_device = pytest.StashKey[VirtualDevice]()
_outcome = pytest.StashKey[str]()


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
    config.stash[_device] = VirtualDevice()
    file: Path | None = config.getoption("--sync-baseline")
    update: bool = config.getoption("--sync-baseline-update")
    if file is None:
        if update:
            raise pytest.UsageError("--sync-baseline-update needs --sync-baseline FILE")
        return
    ratchet = Ratchet(file.absolute(), config.rootpath, update)
    ratchet.check()
    config.stash[_ratchet] = ratchet
    # With xdist every process compares; the controller gets the reports of all tests and sums up.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(ratchet, "syncfree-ratchet")


@pytest.fixture(name=FIXTURE)
def _virtual_device(request: pytest.FixtureRequest) -> Iterator[None]:
    with request.config.stash[_device].open(request.config.getoption("--sync-tier")):
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Without a GPU, the fixtures of a judged test see the virtual device too."""
    if not isinstance(item, pytest.Function):
        return
    if item.get_closest_marker("no_sync") is not None or "no_sync" in item.fixturenames:
        put_first(item)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Fixtures of a wider scope run outside of tier 0, because other tests use them too."""
    if fixturedef.scope == "function":
        return (yield)
    with request.config.stash[_device].left():
        return (yield)


@pytest.fixture
def no_sync(request: pytest.FixtureRequest) -> Iterator[Callable[..., Guard]]:
    """A function of ``max``, ``allow`` and ``warmup`` that makes guards for `with` blocks.

    A guard may be entered again and again; its first `warmup` blocks are not judged.
    """
    guards = []

    def make(max: int = 0, allow: Sequence[Pattern] = (), warmup: int = 0) -> Guard:
        __tracebackhide__ = True
        guards.append(Guard(request.node, max, allow, warmup))
        return guards[-1]

    yield make
    passed = request.node.stash.get(_outcome, "") == "passed"
    if passed and not any(guard.idle for guard in guards):
        ended = any(guard.ended_by_error for guard in guards)
        _warn_of_nothing(request.node, _ENDED if ended else _NO_BLOCK)
    _warn_if_idle(request.node, guards)


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
    with _judging(guard, pyfuncitem):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """The same for methods of a `unittest.TestCase`, which calls them itself after `setUp`."""
    marker = item.get_closest_marker("no_sync")
    if marker is None or not isinstance(item, pytest.Function):
        return
    if item.cls is not None and issubclass(item.cls, unittest.TestCase):
        case = item.instance
        item.obj = _judged(item.obj, marker, item)
        # pytest does this itself, but not for asynchronous methods.
        setattr(case, item.name, item.obj)


def _judged(
    method: Callable[[], Any], marker: pytest.Mark, item: pytest.Function
) -> Callable[[], Any]:
    if inspect.iscoroutinefunction(method):

        async def run() -> Any:
            guard = _guard_of(marker, item)
            for _ in range(guard.warmup):
                with guard:
                    await method()
            with _judging(guard, item):
                return await method()

    else:

        def run() -> Any:  # type: ignore[misc]
            guard = _guard_of(marker, item)
            for _ in range(guard.warmup):
                with guard:
                    method()
            with _judging(guard, item):
                return method()

    return functools.wraps(method)(run)


@contextmanager
def _judging(guard: Guard, item: pytest.Item) -> Iterator[None]:
    guard.raises = False
    with guard:
        yield
    if guard.failure is not None:
        # The report says where; a traceback would lead into this plugin.
        pytest.fail(str(guard.failure), pytrace=False)
    _warn_if_idle(item, [guard])


def _warn_if_idle(item: pytest.Item, guards: Sequence[Guard]) -> None:
    """Warns of a test that passes only because nothing in it could be judged."""
    judged = [idle for guard in guards for idle in guard.idle]
    if judged and all(judged):
        _warn_of_nothing(
            item,
            "no operation on a CUDA tensor ran. Without a GPU the detector follows the tensors "
            'that the test and its function-scoped fixtures put on "cuda". Choose the device '
            "there, where torch.cuda.is_available() is True, and not at import or in a fixture of "
            "a wider scope",
        )


def _warn_of_nothing(item: pytest.Item, reason: str) -> None:
    from syncfree.errors import SyncWarning

    item.warn(SyncWarning(f"no_sync judged nothing: {reason}"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Puts the findings of a test on its report, which xdist sends to the controller."""
    report = yield
    if report.when == "call":
        item.stash[_outcome] = report.outcome
    if report.when == "call" and FOUND in item.stash:
        report.syncfree_findings = item.stash[FOUND]
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
        TypeError: `allow` is not a list of patterns.
        ValueError: `max` or `warmup` is not a count.
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
        self.idle: list[bool] = []  # one for each judged block
        self.ended_by_error = False  # some block, which is then not judged

    def __enter__(self) -> Report:
        from syncfree.detector.tiers import TierUnavailableError

        try:
            return self._region.__enter__()
        except TierUnavailableError as error:
            # The machine is the cause, not the test: a traceback would lead into this plugin.
            reason = str(error)
        pytest.fail(f"--sync-tier: {reason}", pytrace=False)

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self._region.__exit__(kind, error, traceback)
        if self._left:
            self._left -= 1
            return
        report = self._region.report
        if error is None:
            self.idle.append(report.idle)
        else:
            self.ended_by_error = True
        ratchet = self._item.config.stash.get(_ratchet, None)
        if ratchet is not None:
            report = ratchet.judge(self._item, report)
        if error is None and report.count > self._max:
            from syncfree.errors import SyncError

            __tracebackhide__ = True
            self.failure = SyncError(f"at most {self._max} allowed, but {report}", report)
            if self.raises:
                raise self.failure
