"""Folders, what one process says of them, and processes that run into trouble."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from comparing import Folders, distorted, picture

PATIENCE = 500  # seconds, for machines that do much else

# Ranks are started by spawn, so each runs this too, and can be told what to do to itself.
TROUBLE = r"""
import os, signal, sys, time
from syncfree.cli import main
from syncfree.cli.compare import pipeline

load, loaded = pipeline.load_pair, []
trouble = dict(each.split("=") for each in os.environ["TROUBLE"].split(","))

def troubled(pair, *rest):
    loaded.append(pair)
    how = trouble.get(os.environ.get("RANK"))
    if len(loaded) > {"killed": 4, "killed late": 14}.get(how, 1000):
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "stuck" and len(loaded) > 4:
        time.sleep(10_000)
    if how == "stopped" and len(loaded) > 4:
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "broken" and len(loaded) > 4:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    if how == "slow":
        os.write(1, b"loading\n")  # one write, that of another process cannot divide it
    time.sleep(0.3 if how == "slow" else 0.05)
    return load(pair, *rest)

pipeline.load_pair = troubled
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""


def run(command, **environment):
    return subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=PATIENCE,
        check=False,
    )


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("fleet")


@pytest.fixture(scope="module")
def folders(base):
    """48 pairs of mixed sizes, one of them broken."""
    made = Folders(base)
    for index in range(48):
        a = picture(index, 24 + 8 * (index % 4), 30 + 6 * (index % 3), 1 if index % 5 == 0 else 3)
        made.add(f"{index:02}.png", a, distorted(a, index))
    (made.test / "07.png").write_bytes(b"no picture")
    return made


@pytest.fixture(scope="module")
def alone(folders):
    """What one process says."""
    status, report = folders.compare("--device", "cpu")
    assert status == 1
    assert len(report["images"]) == 47
    return report


@pytest.fixture(scope="module")
def script(base):
    path = base / "trouble.py"
    path.write_text(TROUBLE)
    return path


def assert_same_answers(report, alone):
    """Bit for bit: JSON has all digits of each number."""
    assert report["images"] == alone["images"]
    assert report["summary"]["metrics"] == alone["summary"]["metrics"]
    assert report["problems"][: len(alone["problems"])] == alone["problems"]
