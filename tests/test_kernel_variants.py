"""The script that times variants of kernels: what it makes of the programs' words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "tools" / "kernel_variants"))
import compare


def program(folder: Path, name: str, us: float, value: str) -> None:
    path = folder / "programs" / name
    path.parent.mkdir(exist_ok=True)
    line = f"value 32x3x1080x1920 noise {us:10.2f} {us - 1:10.2f} {value:>14}"
    path.write_text(f"#!/bin/sh\necho '{line}'\n")
    path.chmod(0o755)


def test_variants_stand_beside_what_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(tmp_path, "as it is", 950.0, "0.985324025")
    program(tmp_path, "another order", 930.5, "0.985324025")
    program(tmp_path, "wrong", 100.0, "0.5")
    compare.run(tmp_path, ["value"], rounds=2)
    assert capsys.readouterr().out.splitlines() == [
        "value 32x3x1080x1920 noise",
        "      950.00 us  as it is",
        "      930.50 us  another order",
        "      100.00 us  wrong  value 0.5, not 0.985324025",
    ]


def test_a_patch_says_which_files_it_changes(tmp_path: Path) -> None:
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "a.cuh").write_text("one\n")
    patch = tmp_path / "two.patch"
    patch.write_text("--- a/csrc/a.cuh\n+++ b/csrc/a.cuh\n@@ -1 +1 @@\n-one\n+two\n")
    assert compare.apply(patch, tmp_path) == {Path("csrc/a.cuh")}
    assert (tmp_path / "csrc" / "a.cuh").read_text() == "two\n"
    with pytest.raises(subprocess.CalledProcessError):
        compare.apply(patch, tmp_path)


def test_an_object_is_made_anew_when_what_it_includes_changes(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "csrc").mkdir(parents=True)
    source, outside, made = tree / "csrc" / "x.cu", tmp_path / "z.h", tmp_path / "x.o"
    source.touch()
    outside.touch()
    assert not compare.is_current(made)
    made.with_suffix(".d").write_text(f"x.o : {source} \\\n {outside}\n")
    made.touch()
    assert compare.dependencies(made.with_suffix(".d"), tree) == {Path("csrc/x.cu")}
    assert compare.is_current(made)
    os.utime(outside, (made.stat().st_mtime + 1,) * 2)
    assert not compare.is_current(made)
