"""What `make` without a target shows."""

from __future__ import annotations

import re
from pathlib import Path

MAKEFILE = (Path(__file__).parent.parent / "Makefile").read_text()


def test_help_names_every_command() -> None:
    commands = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert commands is not None
    shown = re.findall(r'^\t@echo "make (\S+) ', MAKEFILE, re.MULTILINE)
    assert sorted(shown) == sorted({*commands[1].split()} - {"help"})
