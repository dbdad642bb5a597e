"""The walk over frames on every other CPython that this machine has."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pybind11
import pytest

ROOT = Path(__file__).resolve().parent.parent
MINORS = [minor for minor in range(10, 14) if minor != sys.version_info.minor]


def find_python(minor: int) -> str | None:
    """One with its headers: from pyenv, or on the path."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = sorted(pyenv.glob(f"versions/3.{minor}.*/bin/python3.{minor}"))
    found += [Path(p) for p in [shutil.which(f"python3.{minor}")] if p]
    for python in found:
        ask = "import sysconfig; print(sysconfig.get_path('include'))"
        told = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
        if told.returncode == 0 and Path(told.stdout.strip(), "Python.h").exists():
            return str(python)
    return None


@pytest.mark.slow
@pytest.mark.parametrize("minor", MINORS)
def test_other_versions(minor: int, tmp_path: Path) -> None:
    base = find_python(minor)
    if base is None:
        pytest.skip(f"no Python 3.{minor} with headers on this machine")
    subprocess.run([base, "-m", "venv", tmp_path / "venv"], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "pytest"], check=True)

    package = tmp_path / "syncfree"
    shutil.copytree(
        ROOT / "python" / "syncfree", package, ignore=shutil.ignore_patterns("*.so", "lib")
    )
    ask = "import sysconfig as s; print(s.get_path('include'), s.get_config_var('EXT_SUFFIX'))"
    told = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
    include, suffix = told.stdout.split()
    header = (ROOT / "csrc" / "runtime" / "build_info.h.in").read_text()
    generated = tmp_path / "generated" / "runtime"
    generated.mkdir(parents=True)
    (generated / "build_info.h").write_text(re.sub(r"@\w+@", "", header))
    subprocess.run(
        [
            sysconfig.get_config_var("CXX").split()[0],
            *("-std=c++20", "-O0", "-fPIC", "-shared", "-fvisibility=hidden"),
            *("-I", ROOT / "csrc", "-I", tmp_path / "generated", "-I", include),
            *("-I", pybind11.get_include()),
            *sorted((ROOT / "csrc" / "runtime").glob("*.cpp")),
            *("-o", package / f"_runtime{suffix}"),
            ROOT / "csrc" / "core" / "isa.cpp",
        ],
        check=True,
    )
    subprocess.run(
        [
            *(python, "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider"),
            *("-c", os.devnull, ROOT / "tests" / "test_python_stack.py"),
        ],
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
