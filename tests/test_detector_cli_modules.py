"""`syncfree syncs -m`: modules and packages run as by `python -m`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncs_command import findings, syncs

pytestmark = pytest.mark.usefixtures("stub_in_a_folder")

SHOWS = """
import os, pickle, sys
from . import neighbour

class Thing:
    pass

print(sys.argv, __name__, __package__, __spec__.name, __spec__.parent, __file__, __doc__)
print(os.path.realpath(sys.path[0]), neighbour.value, type(__loader__).__name__)
assert sys.modules["__main__"].Thing is Thing
assert type(pickle.loads(pickle.dumps(Thing()))) is Thing
"""


@pytest.fixture
def package(stub_in_a_folder, script) -> Iterator[None]:
    Path("house/room").mkdir(parents=True)
    script("print('house')", "house/__init__.py")
    script("", "house/room/__init__.py")
    script("value = 7", "house/room/neighbour.py")
    script(SHOWS, "house/room/shows.py")
    script(SHOWS, "house/room/__main__.py")
    yield
    for module in [each for each in sys.modules if each.partition(".")[0] == "house"]:
        del sys.modules[module]


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("name", ["house.room.shows", "house.room"])
def test_what_a_module_sees_is_what_python_m_shows(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["-m", name, "--tier", "x"]
    alone = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True
    ).stdout
    assert "'--tier', 'x'] __main__ house.room " in alone
    assert syncs(*arguments) == 0
    assert capsys.readouterr().out.startswith(alone)


def test_findings_and_steps_of_a_module(script, capsys: pytest.CaptureFixture[str]) -> None:
    script(
        """
        from detector_stub import wait

        def step():
            wait("Tensor.item")

        wait("Tensor.setup")
        for _ in range(3):
            step()
        """,
        "looping.py",
    )
    assert syncs("-m", "looping") == 1
    assert "/looping.py:4 in step: Tensor.item, 3x" in capsys.readouterr().out
    for step in ("step", "looping:step"):
        assert findings("--step-function", step, "-m", "looping") == {"Tensor.item": 2}


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere_at_all", "-m nowhere_at_all: there is no module nowhere_at_all"),
        ("nowhere_at_all.train", "there is no module nowhere_at_all"),
        ("house.attic", "there is no module house.attic"),
        ("house.room.neighbour.x", "there is no module house.room.neighbour.x"),
        ("house", "-m house: it is a package without a __main__ module"),
        ("math", "-m math: it has no Python source"),
        ("house/room/shows.py", "a script is run without -m"),
    ],
)
def test_what_is_no_module(name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert syncs("-m", name) == 2
    shown = capsys.readouterr()
    assert message in " ".join(shown.err.split())
    assert "Traceback" not in shown.err


def test_a_module_that_lacks_another_fails_as_alone(
    script, capsys: pytest.CaptureFixture[str]
) -> None:
    script("import nowhere_at_all", "lacking.py")
    assert syncs("-m", "lacking") == 2
    assert "ModuleNotFoundError: No module named 'nowhere_at_all'" in capsys.readouterr().err
