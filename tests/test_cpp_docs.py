"""Every code block of docs/cpp.md is built and run, and the package installs without Python."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cpp_programs
from cpp_programs import ROOT, run

PAGE = (ROOT / "docs" / "cpp.md").read_text()
EXAMPLES = [path.read_text() for path in sorted((ROOT / "examples" / "cpp").rglob("*.cpp"))]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


PROGRAMS = [block for block in blocks("cpp") if "int main(" in block]
EXCERPTS = [block for block in blocks("cpp") if "int main(" not in block]


@pytest.fixture
def shell(tmp_path: Path):
    """Runs lines of bash in a folder, where `python` and `cmake` are those of the tests."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, program in [("python", sys.executable), ("cmake", cpp_programs.cmake())]:
        (tools / name).write_text(f'#!/bin/sh\nexec "{program}" "$@"\n')
        (tools / name).chmod(0o755)

    def lines(text: str, folder: Path) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text], cwd=folder, capture_output=True, text=True,
            check=False, env={**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return lines


def project(folder: Path) -> Path:
    """The project of the page's first lines."""
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(blocks("cmake")[0])
    (folder / "compare.cpp").write_text(PROGRAMS[0])
    return folder


def check_comparison(printed: str) -> None:
    found = re.fullmatch(r"([\d.]+) dB, SSIM ([\d.]+)\n", printed)
    assert found is not None, printed
    assert float(found.group(1)) == pytest.approx(26.02, abs=0.01)  # an error of 0.05
    assert 0 < float(found.group(2)) < 1


def test_no_block_is_left_out():
    assert len(blocks("cmake")) == 1
    assert len(blocks("bash")) == 4
    assert len(PROGRAMS) == 4
    assert len(EXCERPTS) == 4
    assert PAGE.count("```") == 2 * (1 + 4 + 4 + 4)


def test_project_with_the_installed_package(shell, tmp_path):
    printed = shell(blocks("bash")[0], project(tmp_path / "compare"))
    check_comparison(printed.splitlines(keepends=True)[-1])


def test_project_without_cmake(shell, tmp_path):
    """One line for the compiler in a folder that holds nothing but the program."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "compare.cpp").write_text(PROGRAMS[0])
    check_comparison(shell(blocks("bash")[1], tmp_path / "empty"))


@pytest.mark.parametrize("program", PROGRAMS[1:], ids=["scratch", "threads", "gaps"])
def test_program(program, tmp_path):
    source, built = tmp_path / "program.cpp", tmp_path / "program"
    source.write_text(program)
    library = next(Path(cpp_programs.package_dir()).parents[1].glob("libsyncfree_core.so.*"))
    compiled = run(
        os.environ.get("CXX", "c++"), "-std=c++20", "-Wall", "-Wextra", "-Werror", source, library,
        "-I", cpp_programs.include_dir(), f"-Wl,-rpath,{library.parent}", "-pthread", "-o", built,
    )  # fmt: skip
    assert compiled.returncode == 0, compiled.stderr
    done = run(built)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("excerpt", EXCERPTS, ids=["cuda", "libtorch", "timer", "gaps"])
def test_excerpts_are_of_the_examples(excerpt):
    """Which tests/cpp_programs.py builds."""
    assert any(excerpt in example for example in EXAMPLES)


def test_configuration_of_the_libtorch_example(shell, tmp_path):
    shell(blocks("bash")[3].replace("build/evaluation", str(tmp_path / "build")), ROOT)
    assert (tmp_path / "build" / "CMakeCache.txt").exists()


def test_installation_without_python(shell, tmp_path):
    """The page's commands, but without optimisation, and CUDA, which would take many minutes."""
    lines = blocks("bash")[2]
    prefix, build = tmp_path / "prefix", tmp_path / "build"
    for old, new in [
        ("build/core", str(build)),
        ("/opt/syncfree", str(prefix)),
        (
            "-DSYNCFREE_PYTHON=OFF",
            "-DSYNCFREE_PYTHON=OFF -DSYNCFREE_CUDA=OFF -DCMAKE_BUILD_TYPE=Debug "
            "-DCMAKE_CXX_FLAGS_DEBUG=-O0 -DPython_EXECUTABLE=/nowhere -Dpybind11_DIR=/nowhere",
        ),
    ]:
        assert old in lines
        lines = lines.replace(old, new)
    printed = shell(lines, ROOT)
    assert "torch" not in printed.lower().replace("syncfree/torch", "")
    assert sorted(p.name for p in prefix.iterdir()) == ["include", "lib"]

    elsewhere = prefix.rename(tmp_path / "moved")  # the package finds itself wherever it is
    folder = project(tmp_path / "compare")
    lines = blocks("bash")[0].replace('syncfree_DIR="$(python -m syncfree --cmake-dir)"', "{}")
    printed = shell(lines.format(f'CMAKE_PREFIX_PATH="{elsewhere}"'), folder)
    check_comparison(printed.splitlines(keepends=True)[-1])

    line = blocks("bash")[1]
    for name, place in (("include", "include"), ("lib", "lib")):
        line = line.replace(f"$(python -m syncfree --{name}-dir)", str(elsewhere / place))
    assert "$(" not in line
    check_comparison(shell(line, folder))
