"""Runs tests again with instruction sets below that of the run, which has them all on its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from syncfree._runtime import instruction_set

ASCENDING = ["baseline", "avx2", "avx512"]

every_lower_set = pytest.mark.parametrize("isa", ASCENDING[:-1])


def passes_with(isa: str, chosen: str, *files: object) -> None:
    """In a process of its own, since the choice is made once; `chosen` is pytest's ``-k``."""
    if ASCENDING.index(isa) >= ASCENDING.index(instruction_set()):
        pytest.skip(f"the tests themselves run with {instruction_set()}")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", chosen]
    done = subprocess.run(
        [*command, *map(str, files)],
        env={**os.environ, "SYNCFREE_ISA": isa},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
