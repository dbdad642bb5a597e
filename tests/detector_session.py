"""Sessions of pytest with the plugin of the detector, whose tier is a stub."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

import syncfree

PLUGIN = "syncfree.detector.pytest_plugin"
IS_INSTALLED = any(
    entry.value == PLUGIN for entry in importlib.metadata.entry_points(group="pytest11")
)

# A wait is a call of `wait`.
CONFTEST = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import detector_stub
from syncfree.detector import tiers
tiers._made = lambda number, recorder: detector_stub.StubTier(recorder, 0)
tiers.has_gpu = lambda: False  # without torch, whose import takes seconds
"""

WAITS = """
import pytest
from detector_stub import wait

def helper():
    wait()

@pytest.mark.no_sync
def test_good():
    pass

@pytest.mark.no_sync
def test_bad():
    helper()

@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.no_sync(max=1)
def test_some(n):
    for _ in range(n):
        wait("Tensor.tolist")

def test_unmarked():
    wait()
"""


@pytest.fixture(name="session")
def make_session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Runs pytest on a module and returns its result."""
    packages = [str(Path(place).parent) for place in syncfree.__path__]
    monkeypatch.setenv("PYTHONPATH", ":".join([*packages, *sys.path]))
    pytester.makeconftest(CONFTEST)

    def run(source: str, *options: object) -> pytest.RunResult:
        pytester.makepyfile(test_it=source)
        plugin = [] if IS_INSTALLED else ["-p", PLUGIN]
        given = map(str, options)
        return pytester.runpytest_subprocess(*plugin, "-p", "no:cacheprovider", *given)

    return run
