"""Which sources changed since all tests last ran on a GPU, and which tests failed there.

`make test-gpu` records the hash of every source under csrc/, include/ and python/, and this
compares them. It never fails: it only shows which code has not run on a GPU.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "tests" / "gpu_verified.json"
INSTALLED = ROOT / "python" / "syncfree" / "include"  # copies of headers, for C++ programs
SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".py", ".in"}


def source_hashes() -> dict[str, str]:
    """SHA-256 of each source file, by its path in the repository."""
    folders = [ROOT / name for name in ("csrc", "include", "python")]
    files = [p for folder in folders for p in folder.rglob("*") if p.is_file()]
    return {
        path.relative_to(ROOT).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(files)
        if path.suffix in SUFFIXES and INSTALLED not in path.parents
    }


def main() -> None:
    """Prints the record, and the sources that differ from it."""
    if not RECORD.is_file():
        print(
            "No GPU run is recorded: `make test-gpu` on a GPU machine writes "
            "tests/gpu_verified.json."
        )
        return
    record = json.loads(RECORD.read_text())
    failed = record.get("failed", [])  # old records lack it: runs with failures were not recorded
    not_reached = record.get("not_reached", 0)  # the same for runs that were broken off
    print(
        f"Last GPU run: {record['passed']} passed, {len(failed)} failed, "
        f"{record['skipped']} skipped, {not_reached} not reached "
        f"on {record['gpus']} x {record['gpu']}, torch {record['torch']}, {record['date']}"
    )
    for name in failed:
        print(f"  failed there: {name}")
    now, then = source_hashes(), record["sources"]
    changed = sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))
    if not changed:
        print("Every source file is as it was then.")
    for name in changed:
        print(f"  not verified on a GPU since its last change: {name}")


if __name__ == "__main__":
    main()
