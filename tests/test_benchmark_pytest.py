"""The fixture `gpu_benchmark` in sessions of pytest with pytest-benchmark."""

from __future__ import annotations

import importlib.metadata
import json

import pytest

pytest_plugins = "pytester"

PLUGIN = "syncfree.benchmarking.pytest_plugin"
IS_INSTALLED = any(
    entry.value == PLUGIN for entry in importlib.metadata.entry_points(group="pytest11")
)

TESTS = """
import time
import pytest
import torch

def test_call(gpu_benchmark):
    three = torch.tensor(3)  # on the CPU, so that the CPU is timed
    assert gpu_benchmark(lambda a, *, b: time.sleep(0.002) or a + b, three, b=4) == 7
    assert gpu_benchmark.stats.stats.min >= 0.002

def test_pedantic(gpu_benchmark):
    seen = []
    gpu_benchmark.group = "pedantic"
    gpu_benchmark.extra_info["why"] = "because"
    gpu_benchmark.pedantic(
        lambda n, *, step: seen.append(n + step),
        setup=lambda: ((len(seen),), {"step": 1}),
        rounds=3,
        l2="keep",
        device="cpu",
    )
    assert seen == list(range(1, len(seen) + 1))

def test_contenders(gpu_benchmark):
    gpu_benchmark.group = "sums"
    both = {"a": lambda: sum(range(9)), "b": lambda: sum(range(99))}
    found = gpu_benchmark.compare(both, device="cpu")
    assert found is None or set(found) == {"a", "b"}

def test_twice(gpu_benchmark):
    gpu_benchmark(int)
    with pytest.raises(RuntimeError, match="measures once a test"):
        gpu_benchmark(int)
"""


FUNCTIONS = """
import pytest
import torch

async def later():
    pass

def pieces():
    yield

@pytest.mark.parametrize("function", [later, pieces])
@pytest.mark.parametrize("options", [{}, {"setup": lambda: None}])
def test_no_whole_call(gpu_benchmark, function, options):
    with pytest.raises(TypeError, match="of which a call runs nothing yet"):
        gpu_benchmark.pedantic(function, device="cpu", **options)

def test_the_name(gpu_benchmark):
    assert gpu_benchmark(abs, torch.tensor(-3)) == 3
    assert gpu_benchmark.extra_info["name"] == "abs"

def test_the_name_of_a_call_with_keywords(gpu_benchmark):
    assert gpu_benchmark(sorted, [1, 2], reverse=True) == [2, 1]
    assert gpu_benchmark.extra_info["name"] == "sorted"

def test_setup_once_a_call(gpu_benchmark):
    made = []
    done = []
    gpu_benchmark.pedantic(
        lambda: done.append(len(made)), setup=lambda: made.append(0), device="cpu"
    )
    assert done == list(range(2, len(made) + 1))  # the first one tells the device
"""


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Runs pytest in this process on `TESTS`."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    # Inside of a worker of xdist pytest-benchmark would measure nothing.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makepyfile(TESTS)

    def run(*arguments: str) -> pytest.RunResult:
        plugins = ["-p", "pytest_benchmark.plugin", "-p", PLUGIN]
        return pytester.runpytest_inprocess(
            *plugins, "-p", "no:cacheprovider", "--benchmark-max-time=0.02", *arguments
        )

    return run


def test_figures_are_saved(session, pytester: pytest.Pytester) -> None:
    result = session("--benchmark-json=found.json")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["*benchmark 'sums': 2 tests*"])
    found = json.loads((pytester.path / "found.json").read_text())["benchmarks"]
    by_name = {each["name"]: each for each in found}
    assert {"test_call", "test_pedantic", "test_contenders a", "test_contenders b"} <= set(by_name)
    assert by_name["test_call"]["stats"]["median"] >= 0.002
    assert by_name["test_call"]["extra_info"]["kind"] in ("cpu", "cuda")
    assert by_name["test_pedantic"]["group"] == "pedantic"
    assert by_name["test_pedantic"]["extra_info"]["why"] == "because"
    for name in ("a", "b"):
        line = by_name[f"test_contenders {name}"]
        assert line["group"] == "sums"
        assert line["extra_info"]["contender"] == name
        # Our median is pytest-benchmark's of the same samples.
        assert line["stats"]["median"] * 1e6 == pytest.approx(line["extra_info"]["device_us"])
        assert line["stats"]["rounds"] == line["extra_info"]["n"]


def test_functions_are_measured_as_they_are(session, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FUNCTIONS)
    session().assert_outcomes(passed=7)


def test_runs_are_compared(session) -> None:
    session("--benchmark-save=first").assert_outcomes(passed=4)
    again = session("--benchmark-compare")
    again.assert_outcomes(passed=4)
    again.stdout.fnmatch_lines(["*test_contenders a (*first*)*"])


def test_disabled(session, pytester: pytest.Pytester) -> None:
    result = session("--benchmark-disable", "-k", "contenders or pedantic or call")
    result.assert_outcomes(passed=2, failed=1, deselected=1)
    result.stdout.fnmatch_lines(["*test_call*"])  # which asks for statistics


THROUGH_A_FIXTURE = """
import pytest

@pytest.fixture
def measured(gpu_benchmark):
    return gpu_benchmark

def test_through_a_fixture(measured):
    assert measured(int) == 0

def test_of_something_else():
    pass
"""


@pytest.mark.parametrize(("option", "runs"), [("only", 5), ("skip", 1)])
def test_tests_that_measure_are_known_as_such(
    session, pytester: pytest.Pytester, option: str, runs: int
) -> None:
    pytester.makepyfile(test_more=THROUGH_A_FIXTURE)
    session(f"--benchmark-{option}").assert_outcomes(passed=runs, skipped=6 - runs)


def test_without_pytest_benchmark(pytester: pytest.Pytester, monkeypatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile("def test(gpu_benchmark): pass")
    result = pytester.runpytest_inprocess("-p", PLUGIN, "-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(["*gpu_benchmark needs pytest-benchmark*"])


@pytest.mark.skipif(not IS_INSTALLED, reason="the installed package is older than the plugin")
def test_the_plugin_comes_with_the_package(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test(gpu_benchmark): gpu_benchmark(int)")
    pytester.runpytest_inprocess("--benchmark-max-time=0.02").assert_outcomes(passed=1)
