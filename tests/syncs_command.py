"""`syncfree syncs` on scripts of a few lines, with the tier of detector_stub.py."""

from __future__ import annotations

import json
import linecache
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import detector_stub
import syncfree
from syncfree.cli import main

TRAIN = """
import sys
import torch
from detector_stub import wait

net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
wait("Tensor.setup")

def train_step():
    net(torch.ones(2)).sum().backward()
    optimizer.step()

for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 4):
    train_step()
    wait("Tensor.item")  # guilty
print("finished", step + 1)
"""


@pytest.fixture
def stub_in_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    detector_stub.install(monkeypatch)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def script(tmp_path: Path):
    """Writes a script and returns its path."""

    def write(text: str, name: str = "train.py") -> str:
        (tmp_path / name).write_text(textwrap.dedent(text).lstrip())
        linecache.checkcache()
        return str(tmp_path / name)

    return write


def syncs(*arguments: object) -> int:
    before = sys.argv, list(sys.path), sys.modules["__main__"], signal.getsignal(signal.SIGALRM)
    status = main(["syncs", *map(str, arguments)])
    after = sys.argv, list(sys.path), sys.modules["__main__"], signal.getsignal(signal.SIGALRM)
    assert after == before
    assert not detector_stub.is_active()
    return status


def findings(*arguments: object) -> dict[str, int]:
    """Counts by api."""
    syncs("--json", "found.json", *arguments)
    document = json.loads(Path("found.json").read_text())
    return {each["api"]: each["count"] for each in document["findings"]}


PATH = [*(str(Path(place).parent) for place in syncfree.__path__), str(Path(__file__).parent)]
ENVIRONMENT = {**os.environ, "PYTHONPATH": ":".join([*PATH, *sys.path])}
# The tier is a stub: a wait is a call of `wait`.
COMMAND = """
import sys
import detector_stub
from syncfree.cli import main
from syncfree.detector import tiers

tiers.has_gpu = lambda: False
tiers._made = lambda number, recorder: detector_stub.StubTier(recorder)
sys.exit(main(["syncs", *sys.argv[1:]]))
"""


def python(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )


def syncs_alone(folder: Path, text: str) -> tuple[subprocess.CompletedProcess[str], dict]:
    """What the command says of a script in a process of its own, and its JSON report."""
    (folder / "it.py").write_text(textwrap.dedent(text))
    done = python(folder, "-c", COMMAND, "--json", "found.json", "it.py")
    return done, json.loads((folder / "found.json").read_text())
