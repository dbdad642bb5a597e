"""Checks, before any work, whether results can be written where they were asked for."""

# ruff: noqa: PTH110, PTH112
# Path.exists and Path.is_dir raise below a folder without search permission; os.path says False.

from __future__ import annotations

import os
from pathlib import Path


def why_no_file(file: Path) -> str:
    """Why a result file cannot be written; empty if it can.

    Args:
        file: Where the result goes. Its folder must exist.
    """
    if os.path.isdir(file):
        return f"cannot write {file}: it is a folder; name a file in it"
    folder = file.absolute().parent
    if not os.path.isdir(folder):
        problem = "is a file" if os.path.exists(folder) else "does not exist"
        return f"cannot write {file}: its folder {folder} {problem}; name a file in one that exists"
    if os.path.exists(file):
        return "" if os.access(file, os.W_OK) else _may_not_write(file, f"{file}")
    return "" if _takes_files(folder) else _may_not_write(file, f"in its folder {folder}")


def why_no_folder(folder: Path) -> str:
    """Why a folder cannot take result files; empty if it can.

    Args:
        folder: Where the results go. It may be missing, with its parents, and is created later.
    """
    existing = folder.absolute()
    while not os.path.lexists(existing):
        existing = existing.parent
    if not os.path.isdir(existing):
        return f"cannot write into {folder}: {existing} is no folder; name a folder"
    return "" if _takes_files(existing) else _may_not_write(folder, f"in {existing}")


def _takes_files(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def _may_not_write(wanted: Path, where: str) -> str:
    return f"cannot write {wanted}: you may not write {where}; name another place, or allow it"
