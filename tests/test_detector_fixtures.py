"""Tests that must not wait, whose device is chosen in a fixture, without a GPU."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import syncfree
from syncfree.detector import Verdict
from syncfree.detector.tier0 import recording

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="tier 0 stands in for a GPU")

PATH = ":".join([*(str(Path(place).parent) for place in syncfree.__path__), *sys.path])
ENVIRONMENT = {**os.environ, "PYTHONPATH": PATH, "CUDA_VISIBLE_DEVICES": ""}
PLUGIN = "syncfree.detector.pytest_plugin"
IS_INSTALLED = any(
    entry.value == PLUGIN for entry in importlib.metadata.entry_points(group="pytest11")
)

TRAINER = """
import unittest
import pytest
import torch

class Trainer:
    def __init__(self):
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.net = torch.nn.Linear(4, 1).to(self.device)

    def step(self):
        return self.net(torch.rand(8, 4).to(self.device)).sum()

@pytest.fixture
def trainer():
    made = Trainer()
    made.step().item()  # not of the test itself
    yield made
    torch.cuda.synchronize()  # torch of a machine without a GPU would raise

@pytest.fixture(scope="module")
def of_all_tests():
    return Trainer()
"""


def outcomes(folder: Path, source: str) -> tuple[dict[str, str], str]:
    """What became of each test, by its name, and all that pytest said."""
    (folder / "test_it.py").write_text(TRAINER + source)
    plugin = [] if IS_INSTALLED else ["-p", PLUGIN]
    options = ["-v", "-p", "no:cacheprovider", "-p", "no:xdist", "--color", "no"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, *options],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"^test_it\.py::(?:\w+::)?([\w[\]]+) ([A-Z]+)", done.stdout, re.MULTILINE)
    return dict(found), done.stdout + done.stderr


def test_fixtures_and_set_ups_run_inside_of_tier_0(tmp_path: Path) -> None:
    found, said = outcomes(
        tmp_path,
        """
@pytest.mark.no_sync
def test_reads(trainer):
    trainer.step().item()

@pytest.mark.no_sync
def test_is_clean(trainer):
    trainer.step()

def test_blocks(trainer, no_sync):
    with no_sync():
        trainer.step()
    with no_sync():
        trainer.step().item()

class TestClass:
    def setup_method(self):
        self.trainer = Trainer()

    @pytest.mark.no_sync
    def test_method_reads(self):
        self.trainer.step().item()

class Case(unittest.TestCase):
    def setUp(self):
        self.trainer = Trainer()
        self.trainer.step().item()

    @pytest.mark.no_sync
    def test_case_is_clean(self):
        self.trainer.step()

    @pytest.mark.no_sync
    def test_case_reads(self):
        self.trainer.step().item()

class AsyncCase(unittest.IsolatedAsyncioTestCase):
    @pytest.mark.no_sync
    async def test_awaited_reads(self):
        Trainer().step().item()
""",
    )
    assert found == {
        "test_reads": "FAILED",
        "test_is_clean": "PASSED",
        "test_blocks": "FAILED",
        "test_method_reads": "FAILED",
        "test_case_is_clean": "PASSED",
        "test_case_reads": "FAILED",
        "test_awaited_reads": "FAILED",
    }, said
    failures = said.partition("short test summary info")[0]  # which has all again under CI
    assert failures.count("the host waits 1 time at 1 line") == 5, said
    assert "judged nothing" not in said


def test_what_outlives_a_test_is_made_as_ever(tmp_path: Path) -> None:
    found, said = outcomes(
        tmp_path,
        """
@pytest.fixture(scope="session")
def asked_for_late():
    return torch.cuda.is_available()

@pytest.fixture
def asks(request):
    return request.getfixturevalue("asked_for_late"), torch.cuda.is_available()

@pytest.mark.no_sync
def test_marked(of_all_tests, asks, trainer):
    assert of_all_tests.device == "cpu"
    assert asks == (False, True)
    trainer.step()

def test_unmarked(of_all_tests, asked_for_late):
    assert not torch.cuda.is_available()
    of_all_tests.step().item()
""",
    )
    assert found == {"test_marked": "PASSED", "test_unmarked": "PASSED"}, said


def test_a_marked_parameter_is_alone_with_the_virtual_gpu(tmp_path: Path) -> None:
    found, said = outcomes(
        tmp_path,
        """
MARKED = pytest.param("cuda", marks=pytest.mark.no_sync, id="marked")

@pytest.mark.parametrize("device", [MARKED, pytest.param("cpu", id="unmarked")])
def test_it(device):
    assert Trainer().device == device
""",
    )
    assert list(found) == ["test_it[marked]", "test_it[unmarked]"], said
    assert set(found.values()) == {"PASSED"}, said


def test_a_test_in_which_nothing_was_judged_says_so(tmp_path: Path) -> None:
    found, said = outcomes(
        tmp_path,
        """
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

@pytest.mark.no_sync
def test_of_a_constant():
    torch.ones(3, device=DEVICE).sum().item()

@pytest.mark.no_sync
def test_of_a_wider_fixture(of_all_tests):
    of_all_tests.step().item()

def test_of_blocks(no_sync):
    for _ in range(2):
        with no_sync():
            torch.ones(3, device=DEVICE)

def test_of_one_block(no_sync, trainer):
    guard = no_sync(warmup=1)
    with guard:
        pass
    for work in (trainer.step, int):
        with guard:
            work()
""",
    )
    assert set(found.values()) == {"PASSED"}, said
    assert said.count("SyncWarning: no_sync judged nothing") == 3, said
    assert "test_of_one_block\n  /" not in said


def test_a_test_that_enters_no_block_says_so(tmp_path: Path) -> None:
    found, said = outcomes(
        tmp_path,
        """
def test_never(no_sync):
    torch.ones(3, device="cuda").sum().item()

def test_only_made(no_sync):
    no_sync()

def test_only_warm_ups(no_sync):
    with no_sync(warmup=1):
        pass

def test_fails_before(no_sync):
    assert False

def test_is_skipped_before(no_sync):
    pytest.skip("for a reason")
""",
    )
    assert sorted(found.values()) == ["FAILED", "PASSED", "PASSED", "PASSED", "SKIPPED"], said
    assert said.count("the test entered no block, as `with no_sync():`") == 3, said


def test_a_block_that_ends_with_an_exception_says_so(tmp_path: Path) -> None:
    found, said = outcomes(
        tmp_path,
        """
def fail():
    torch.ones(3, device="cuda").sum().item()
    raise ValueError

def test_ended(no_sync):
    with pytest.raises(ValueError), no_sync():
        fail()

def test_ended_in_a_warm_up(no_sync):
    with pytest.raises(ValueError), no_sync(warmup=1):
        fail()

def test_inside(no_sync):
    with no_sync(max=1), pytest.raises(ValueError):
        fail()

def test_one_of_two(no_sync):
    with pytest.raises(ValueError), no_sync():
        fail()
    with no_sync():
        torch.ones(3, device="cuda")
""",
    )
    assert set(found.values()) == {"PASSED"}, said
    assert said.count("SyncWarning: no_sync judged nothing") == 2, said
    assert said.count("judged nothing: each block of the test ended with an exception") == 1, said
    assert said.count("the test entered no block") == 1, said


def test_emptying_a_cache_that_holds_nothing_is_no_use_of_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lightning does it on the CPU, too."""
    monkeypatch.setattr(recording.device, "seen", 0)
    with syncfree.detect_syncs(tier=0) as report:
        torch.cuda.empty_cache()
    assert report.idle
    assert not report.findings
    with syncfree.detect_syncs(tier=0) as report:
        torch.ones(3, device="cuda")
        torch.cuda.empty_cache()
    assert not report.idle
    assert [each.event.verdict for each in report.findings] == [Verdict.CONDITIONAL]


def test_a_region_in_which_nothing_was_judged_says_so() -> None:
    with syncfree.detect_syncs(tier=0) as report:
        torch.ones(3).sum().item()
    assert report.idle
    assert report.json()["idle"] is True
    assert str(report).startswith("nothing was judged: no operation on a CUDA tensor ran.")
    with syncfree.detect_syncs(tier=0):
        x = torch.ones(3, device="cuda")
        with syncfree.detect_syncs() as report:
            x.add_(1)  # writes, and returns nothing new
        assert not report.idle
        assert str(report).startswith("the host never waits")
        with syncfree.detect_syncs() as report:
            torch.cuda.synchronize()
        assert not report.idle
