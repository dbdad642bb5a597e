"""The script that times variants of kernels: what is compiled anew, and what programs say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_variants import compare

# Objects are the text of a source and of what it includes; a program is that of its objects.
NVCC = """
import re, sys
from pathlib import Path
words = sys.argv[1:]
to = Path(words[words.index("-o") + 1])
if "-c" not in words:
    to.write_text("".join(Path(w).read_text() for w in words if w.endswith(".o")))
    sys.exit()
source = Path(words[words.index("-c") + 1])
root = next(Path(w[2:]) for w in words if w.startswith("-I"))
files = [source, *(root / name for name in re.findall('#include "(.*)"', source.read_text()))]
to.write_text("".join(file.read_text() for file in files))
names = " \\\\\\n  ".join(str(file).replace(" ", "\\\\ ") for file in files)
Path(words[words.index("-MF") + 1]).write_text(f"{to} : {names}\\n")
"""


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=b", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a small project, in which variants are built, too."""
    root = tmp_path / "a checkout"
    files = {
        "csrc/core/device.cu": "device\n",
        "csrc/ssim/strip.cu": '#include "ssim/strip.cuh"\n',
        "csrc/ssim/strip.cuh": "const int rows = 8;\n",
        "csrc/ssim/ssim.h": "struct Problem {};\n",
        "csrc/ssim/old.cu": "old\n",
        "time_ssim.cu": '#include "ssim/ssim.h"\n',
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "all")
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text(f"#!{sys.executable}\n{NVCC}")
    nvcc.chmod(0o755)
    monkeypatch.setenv("PATH", f"{nvcc.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(compare, "ROOT", root)
    monkeypatch.setattr(compare, "PROGRAM", root / "time_ssim.cu")
    return root


def patch_of(root: Path, name: str) -> Path:
    git(root, "add", "-A", "csrc")
    patch = root / f"{name}.patch"
    patch.write_text(git(root, "diff", "--cached", "csrc"))
    git(root, "reset", "-q", "--hard")
    return patch


def programs(out: Path) -> dict[str, str]:
    return {each.name: each.read_text() for each in (out / "programs").iterdir()}


def test_a_patch_is_in_its_program_and_in_no_other(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "csrc/ssim/strip.cuh").write_text("const int rows = 16;\n")
    taller = patch_of(checkout, "taller")
    (checkout / "csrc/ssim/ssim.h").write_text("struct Problem { int more; };\n")
    wider = patch_of(checkout, "wider")
    (checkout / "csrc/ssim/old.cu").rename(checkout / "csrc/ssim/new.cu")
    (checkout / "csrc/ssim/new.cu").write_text("new\n")
    renamed = patch_of(checkout, "renamed")

    out = checkout / "build" / "variants"
    compare.build(out, [taller, wider, renamed], "90")
    texts = programs(out)
    assert set(texts) == {compare.AS_IS, "taller", "wider", "renamed"}
    assert "rows = 8" in texts[compare.AS_IS]
    assert "rows = 16" in texts["taller"]
    assert "rows = 8" not in texts["taller"]
    assert "int more" in texts["wider"]
    assert "struct Problem {};" not in texts["wider"]
    assert "new" in texts["renamed"]
    assert "old" not in texts["renamed"]
    assert "taller: 1 files compiled, 0 bytes spilled" in capsys.readouterr().out

    # What was built before is not timed beside what is there now, nor taken for it.
    (checkout / "csrc/core/device.cu").write_text("another device\n")
    compare.build(out, [taller], "90")
    texts = programs(out)
    assert set(texts) == {compare.AS_IS, "taller"}
    assert all("another device" in text for text in texts.values())


def test_a_patch_that_changes_no_program_is_none(checkout: Path) -> None:
    (checkout / "csrc/ssim/notes.h").write_text("of no use\n")
    with pytest.raises(RuntimeError, match="changes nothing of which the program is made"):
        compare.build(checkout / "build", [patch_of(checkout, "notes")], "90")
    unknown = checkout / "unknown.patch"
    unknown.write_text("--- a/csrc/none.h\n+++ b/csrc/none.h\n@@ -1 +1 @@\n-one\n+two\n")
    with pytest.raises(RuntimeError, match=r"unknown\.patch does not apply: .*none\.h"):
        compare.build(checkout / "build", [unknown], "90")


def program(folder: Path, name: str, us: float, value: str) -> None:
    path = folder / "programs" / name
    path.parent.mkdir(exist_ok=True)
    line = f"value 32x3x1080x1920 noise {us:10.2f} {us - 1:10.2f} {value:>14}"
    path.write_text(f"#!/bin/sh\necho '{line}'\n")
    path.chmod(0o755)


def test_variants_stand_beside_what_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(tmp_path, compare.AS_IS, 950.0, "0.98532403")
    program(tmp_path, "another order", 930.5, "0.98532403")
    program(tmp_path, "wrong", 100.0, "0.5")
    compare.run(tmp_path, ["value"], rounds=2)
    assert capsys.readouterr().out.splitlines() == [
        "value 32x3x1080x1920 noise",
        "      950.00 us  as it is",
        "      930.50 us  another order",
        "      100.00 us  wrong  value 0.5, not 0.98532403",
    ]


def test_a_program_that_fails_says_why(tmp_path: Path) -> None:
    program(tmp_path, compare.AS_IS, 950.0, "0.98532403")
    (tmp_path / "programs" / compare.AS_IS).write_text("#!/bin/sh\necho no device >&2\nexit 1\n")
    with pytest.raises(RuntimeError, match="as it is failed: no device"):
        compare.run(tmp_path, [], rounds=1)


def test_a_sanitizer_gets_each_program_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program(tmp_path, compare.AS_IS, 950.0, "0.98532403")
    tool = tmp_path / "bin" / "compute-sanitizer"
    tool.parent.mkdir()
    tool.write_text(
        "#!/bin/sh\n"
        f'echo "$@" >> "{tmp_path}/calls"\n'
        'echo "========= ERROR SUMMARY: $([ "$2" = racecheck ] && echo 1 || echo 0) errors"\n'
        '[ "$2" != racecheck ]\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    compare.sanitize(tmp_path, ["value"], ["memcheck"])
    assert capsys.readouterr().out == "as it is under memcheck: ERROR SUMMARY: 0 errors\n"
    call = f"--tool memcheck --error-exitcode 1 {tmp_path}/programs/{compare.AS_IS} --once value\n"
    assert (tmp_path / "calls").read_text() == call
    with pytest.raises(RuntimeError, match=r"as it is under racecheck:\n.*SUMMARY: 1 errors"):
        compare.sanitize(tmp_path, ["value"], ["memcheck", "racecheck"])
