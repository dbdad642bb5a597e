"""What a build learns of the installed torch and of this machine's GPUs."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parent.parent / "cmake" / "find_torch.py"


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name, which a test writes; no other is found."""
    monkeypatch.setenv("PATH", str(tmp_path))
    program = tmp_path / "nvidia-smi"
    program.touch(mode=0o755)
    return program


def found() -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)


def test_torch_and_the_gpus_of_this_machine(nvidia_smi: Path) -> None:
    nvidia_smi.write_text("#!/bin/sh\necho 9.0\necho 8.6\necho 9.0\n")
    folder = Path(torch.__file__).parent
    cuda = torch.version.cuda or "none"
    assert found().stdout == f"{folder};{torch.__version__};{cuda};86,90\n"


@pytest.mark.parametrize("fails", [True, False])
def test_no_gpu(nvidia_smi: Path, fails: bool) -> None:
    nvidia_smi.write_text("#!/bin/sh\nexit 9\n")
    if not fails:
        nvidia_smi.unlink()
    done = found()
    assert done.stdout.endswith(";none\n")
    assert done.stderr == ""


def test_a_driver_that_hangs_is_told_and_torch_found_all_the_same(
    nvidia_smi: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nvidia_smi.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(600)\n")
    script = runpy.run_path(str(SCRIPT))
    assert script["compute_capabilities"](patience_s=0.1) == []
    told = capsys.readouterr()
    assert told.out == ""  # of which the build reads torch's folder
    assert "nvidia-smi did not answer within 0.1 s" in told.err
