"""Builds tests/cpp against the installed package, once for all processes of a test run."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent


def run(*command: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )


def cmake() -> str:
    """The one beside this interpreter, or that of the machine."""
    beside = Path(sys.executable).parent / "cmake"
    found = str(beside) if beside.exists() else shutil.which("cmake")
    assert found is not None, "the tests of C++ programs need cmake: pip install cmake ninja"
    return found


def package_dir() -> str:
    """What a reader of docs/cpp.md types."""
    found = run(sys.executable, "-m", "syncfree", "--cmake-dir")
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def include_dir() -> str:
    found = run(sys.executable, "-m", "syncfree", "--include-dir")
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def configure(source: Path, build: Path, *options: str) -> subprocess.CompletedProcess[str]:
    ninja = ["-GNinja"] if shutil.which("ninja", path=search_path()) else []
    return subprocess.run(
        [
            cmake(), "-S", str(source), "-B", str(build), *ninja,
            f"-Dsyncfree_DIR={package_dir()}",
            f"-DTorch_DIR={torch.utils.cmake_prefix_path}/Torch",
            *options,
        ],
        env={**os.environ, "PATH": search_path()}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def search_path() -> str:
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


def build_programs(shared: Path) -> Path:
    """The folder of the programs; `shared` is one folder for all processes of the run."""
    folder = shared / "cpp_programs"
    with (shared / "cpp_programs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "done"
        if not done.exists():
            # LibTorch's headers take nearly all of the time; optimising would double it.
            configured = configure(ROOT / "tests" / "cpp", folder, "-DCMAKE_BUILD_TYPE=Debug",
                                   "-DCMAKE_CXX_FLAGS_DEBUG=-O0")  # fmt: skip
            assert configured.returncode == 0, configured.stdout + configured.stderr
            built = subprocess.run(
                [cmake(), "--build", str(folder), "--parallel", "2"],
                env={**os.environ, "PATH": search_path()},
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert built.returncode == 0, built.stdout + built.stderr
            done.touch()
    return folder


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of what tests/cpp builds."""
    base = tmp_path_factory.getbasetemp()
    workers = os.environ.get("PYTEST_XDIST_WORKER_COUNT") is not None
    return build_programs(base.parent if workers else base)


@pytest.fixture(scope="session")
def ops(programs: Path):
    """The functions of syncfree::torch."""
    torch.ops.load_library(str(programs / "libtensor_ops.so"))
    return torch.ops.syncfree_cpp_tests


def same_bits(ours: torch.Tensor, python: torch.Tensor) -> bool:
    return (
        ours.dtype == python.dtype
        and ours.shape == python.shape
        and ours.device == python.device
        and torch.equal(
            ours.cpu().reshape(-1).view(torch.uint8), python.cpu().reshape(-1).view(torch.uint8)
        )
    )
