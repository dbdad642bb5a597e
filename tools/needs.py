"""Installs the requirements of a target that this Python lacks, and nothing else.

`python tools/needs.py test` reads the groups and extras of pyproject.toml. A package that is
installed in a suitable version is left alone, so a machine that has everything needs no network.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

# What each make target needs: extras and dependency groups of pyproject.toml, and "build".
TARGETS = {
    "build": ["build"],
    "demo": ["torchmetrics", "cli", "plot", "demo"],
    "test": ["torchmetrics", "cli", "plot", "demo", "test"],
    "lint": ["torchmetrics", "cli", "lint"],
}
BUILD_TOOLS = ["cmake>=3.26", "ninja"]


def requirements(target: str) -> list[str]:
    """The requirement strings of a target."""
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10
        from pip._vendor import tomli as tomllib
    project = tomllib.loads(Path("pyproject.toml").read_text())
    groups: dict[str, list[str]] = {
        **project["project"]["optional-dependencies"],
        **project["dependency-groups"],
        "build": project["build-system"]["requires"] + BUILD_TOOLS,
    }
    return [requirement for name in TARGETS[target] for requirement in groups[name]]


def is_met(requirement: str) -> bool:
    """Whether a suitable version is installed. This project uses only `==` and `>=`."""
    match = re.fullmatch(r"([A-Za-z0-9._-]+)\s*(?:(==|>=)\s*([0-9.]+))?", requirement)
    if match is None:
        raise SystemExit(f"tools/needs.py does not understand the requirement {requirement!r}")
    name, operator, wanted = match.groups()
    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    if operator is None:
        return True
    have, want = (tuple(map(int, re.findall(r"\d+", v)[:3])) for v in (installed, wanted))
    return have == want if operator == "==" else have >= want


def main() -> None:
    """Installs what is missing for the targets named on the command line."""
    missing = [r for target in sys.argv[1:] for r in requirements(target) if not is_met(r)]
    if missing:
        subprocess.run([sys.executable, "-m", "pip", "install", *missing], check=True)


if __name__ == "__main__":
    main()
