"""The pytest plugin, with pytest's own means: marker and fixture."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from detector_session import PLUGIN, WAITS, make_session  # noqa: F401  (a fixture)

pytest_plugins = "pytester"


def test_the_marker(session) -> None:
    result = session(WAITS)
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines(
        [
            "at most 0 allowed, but the host waits 1 time at 1 line *",
            "*test_it.py:5 in helper: Tensor.item, 1x",
            "FAILED test_it.py::test_bad*",
            "FAILED test_it.py::test_some?2?*",
        ]
    )


def test_the_marker_with_warm_up_and_exceptions(session) -> None:
    result = session(
        """
        import pytest
        from detector_stub import wait
        calls = []

        @pytest.fixture
        def first():
            return not calls

        @pytest.mark.no_sync(warmup=2)
        def test_lazy(first, tmp_path):
            calls.append(tmp_path)
            if len(calls) <= 2:
                wait()

        def test_how_often():
            assert len(calls) == 3

        @pytest.mark.no_sync(allow=["aten::*"])
        def test_allowed():
            wait("aten::nonzero")

        @pytest.mark.no_sync
        def test_its_own_error():
            wait()
            raise KeyError("its own")

        @pytest.mark.no_sync(3)
        def test_positional(): ...

        @pytest.mark.no_sync(limit=3)
        def test_unknown(): ...

        @pytest.mark.no_sync(warmup=-1)
        def test_negative(): ...

        @pytest.mark.no_sync(max="two")
        def test_text(): ...

        def test_fixture(no_sync):
            with pytest.raises(ValueError, match="^max is a count of at least 0, but got 2.5"):
                no_sync(max=2.5)
        """
    )
    result.assert_outcomes(passed=4, failed=5)
    result.stdout.fnmatch_lines(
        [
            "*KeyError: 'its own'",
            "*test_positional: the marker no_sync: it takes max, allow, warmup by name, but got 3",
            "*test_unknown: the marker no_sync: it takes max, allow, warmup by name, *limit=3",
            "*test_negative: the marker no_sync: warmup is a count of at least 0, but got -1",
            "*test_text: the marker no_sync: max is a count of at least 0, but got 'two'",
        ]
    )
    # One line each: whoever wrote the marker is not led through the plugin.
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")
    result.stdout.no_fnmatch_line("*max_syncs*")


def test_the_fixture(session) -> None:
    result = session(
        """
        import pytest
        from syncfree.errors import SyncError
        from detector_stub import wait

        def test_block(no_sync):
            wait()
            with no_sync(max=1) as report:
                wait()
            assert report.count == 1
            with pytest.raises(SyncError), no_sync():
                wait()

        def test_loop(no_sync):
            guard = no_sync(warmup=2)
            for step in range(5):
                with guard:
                    if step < 2:
                        wait()
            with pytest.raises(SyncError), guard:
                wait()
        """
    )
    result.assert_outcomes(passed=2)


def test_a_tier_that_this_machine_lacks(session) -> None:
    """One line a test: a traceback would lead into the plugin."""
    refused = """
import pytest
from syncfree.detector import tiers

def refuse(number, recorder):
    raise tiers.TierUnavailableError(f"tier {number} needs a GPU")

tiers._made = refuse

@pytest.mark.no_sync
def test_it():
    pass
"""
    done = session(refused, "--sync-tier", 3)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["--sync-tier: tier 3 needs a GPU"])
    done.stdout.no_fnmatch_line("*pytest_plugin.py*")


def test_the_marker_is_registered(session) -> None:
    result = session(WAITS, "--strict-markers", "--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.no_sync(max=0, allow=[[]], warmup=0):*"])


def test_no_torch_before_it_is_used() -> None:
    code = f"import sys, {PLUGIN}; print('torch' in sys.modules, 'rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["False", "False"], done.stderr


def test_the_entry_point_names_the_plugin() -> None:
    text = (Path(__file__).parent.parent / "pyproject.toml").read_text()
    assert f'[project.entry-points.pytest11]\nsyncfree = "{PLUGIN}"\n' in text
