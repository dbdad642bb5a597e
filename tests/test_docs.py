"""Every example that a reader may copy runs, and README's figures come from the result files."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import syncfree
from syncfree import functional

ROOT = Path(__file__).resolve().parent.parent

MODULES = sorted(
    m.name
    for m in pkgutil.walk_packages(syncfree.__path__, "syncfree.")
    if not m.name.endswith("__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    if name.startswith("syncfree.detector.tier0") and torch.cuda.is_available():
        pytest.skip("tier 0 stands in for a GPU, and here is a real one")
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert failed == 0


@pytest.mark.parametrize("name", functional._OWN)
def test_every_public_function_is_documented(name: str) -> None:
    function = getattr(functional, name)
    text = function.__doc__ or ""
    for part in ("Args:", "Returns:", "Raises:", "Example:", ">>> ") if callable(function) else ():
        assert part in text or isinstance(function, type), f"{name} lacks {part}"


def python_blocks(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.DOTALL)


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("path", [p for p in PAGES if python_blocks(p)], ids=lambda p: p.name)
def test_python_blocks_of_the_pages(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = python_blocks(path)
    if any(re.search(r"detect_syncs|syncfree\.benchmark\(", block) for block in blocks):
        # In a process of its own: these may use tier 3, and then torch.profiler sees no GPU events.
        program = f"for block in {blocks!r}: exec(block, {{'__name__': '__example__'}})"
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return
    for block in blocks:
        exec(compile(block, str(path), "exec"), {"__name__": "__example__"})


def test_the_script_that_launches(tmp_path: Path) -> None:
    model, launching, *_ = python_blocks(ROOT / "docs/distributed.md")
    script = tmp_path / "judge.py"
    script.write_text(model + launching.replace("local_devices() or ", ""))
    subprocess.run([sys.executable, script], cwd=tmp_path, check=True, timeout=300)
    assert torch.load(tmp_path / "values.pt")["psnr"].shape == (8,)


def test_readme_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    exec(python_blocks(ROOT / "README.md")[0], {})
    assert re.fullmatch(r"accuracy 0\.(09|10)\d\n", capsys.readouterr().out)


def test_readme_names_every_target() -> None:
    text = (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    for line in (ROOT / ".ci" / "run").read_text().splitlines():
        if line.startswith("make "):
            assert f"`{line}`" in text or f"\n{line} " in text, line


def test_readme_figures_are_the_measured_ones() -> None:
    tool = ROOT / "tools" / "readme_figures.py"
    assert subprocess.run([sys.executable, tool, "--check"], check=False).returncode == 0


def test_links_of_the_pages() -> None:
    missing = [
        f"{page.name}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert missing == []


def test_modules_open_with_their_purpose() -> None:
    for name in MODULES:
        module: ModuleType = importlib.import_module(name)
        assert module.__doc__ or name.endswith("_runtime"), name
