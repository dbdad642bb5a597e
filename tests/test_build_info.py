"""Which sources a build says it has."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from cpp_programs import cmake

ROOT = Path(__file__).parent.parent
SCRIPT = """
macro(configure_file)
endmacro()
macro(target_include_directories)
endmacro()
include("{module}")
message("revision [${{SYNCFREE_GIT_REVISION}}]")
"""


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def revision(tree: Path) -> str:
    script = tree.parent / "revision.cmake"
    script.write_text(SCRIPT.format(module=(ROOT / "cmake/BuildInfo.cmake").as_posix()))
    command = (cmake(), f"-DCMAKE_CURRENT_SOURCE_DIR={tree}", "-P", str(script))
    found = re.search(r"revision \[(.*)\]", run(*command, cwd=tree))
    assert found is not None
    return found[1]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    return folder


@pytest.fixture
def checkout(tree: Path) -> Path:
    (tree / "kernel.cu").write_text("first")
    run("git", "init", "--quiet", cwd=tree)
    run("git", "add", ".", cwd=tree)
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    run("git", *who, "commit", "--quiet", "--message=first", cwd=tree)
    run("git", *who, "tag", "--annotate", "v1", "--message=v1", cwd=tree)
    return tree


def test_a_commit_is_named_by_its_number(checkout: Path) -> None:
    head = run("git", "rev-parse", "HEAD", cwd=checkout).strip()
    assert revision(checkout) == head[:12]


def test_sources_that_no_commit_has_are_marked(checkout: Path) -> None:
    (checkout / "kernel.cu").write_text("second")
    head = run("git", "rev-parse", "HEAD", cwd=checkout).strip()
    assert revision(checkout) == f"{head[:12]}+changes"


def test_sources_without_git_have_no_number(tree: Path) -> None:
    assert revision(tree) == ""
