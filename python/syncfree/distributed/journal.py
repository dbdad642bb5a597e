"""Journals of what each rank has done, written as it goes, to complete a run that was cut short."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from syncfree.errors import SyncfreeError

_VERSION = 1
_SUFFIX = ".jsonl"


class JournalError(SyncfreeError, ValueError):
    """A journal is damaged, or belongs to a run that did something else."""


class Journal:
    """Appends entries to a new file of its own; whole lines survive the death of the process.

    Args:
        folder: of the journals of all ranks and runs; made if it is missing.
        rank: of the writer.
        heading: what was asked for; entries of journals with another heading must not be used.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, folder: Path, rank: int, heading: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # A file that an earlier run left may end in half a line, so none is continued.
        self._path = folder / f"rank-{rank}-{uuid.uuid4().hex[:12]}{_SUFFIX}"
        self._file = self._path.open("x", encoding="utf-8")
        self.write({"version": _VERSION, "heading": heading})

    def write(self, entry: Any) -> None:
        """Append an entry, of JSON's types."""
        try:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()
        except OSError as error:
            error.filename = str(self._path)
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_journals(folder: Path, heading: dict[str, Any]) -> Iterator[Any]:
    """Entries of all journals in a folder, of which there may be none.

    A last line without its end is what a killed process was writing, and is left out.

    Args:
        folder: where ranks wrote their journals.
        heading: what is asked for now.

    Raises:
        JournalError: a journal is of another heading or version, or damaged before its last line.
        OSError: a file cannot be read.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from syncfree.distributed.journal import Journal, read_journals
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     journal = Journal(Path(folder), rank=0, heading={"metric": "psnr"})
        ...     journal.write({"item": 3, "value": 31.5})
        ...     journal.close()
        ...     list(read_journals(Path(folder), {"metric": "psnr"}))
        [{'item': 3, 'value': 31.5}]
    """
    for path in sorted(folder.glob(f"rank-*{_SUFFIX}")):
        lines = path.read_bytes().split(b"\n")[:-1]
        try:
            entries = [json.loads(line) for line in lines]
        except ValueError as error:
            raise JournalError(f"{path} is damaged ({error}); remove it and run again") from error
        if not entries:
            continue
        first = entries[0]
        known = isinstance(first, dict) and first.get("version") == _VERSION
        if not (known and isinstance(first.get("heading"), dict)):
            raise JournalError(
                f"{path} is no journal of this version of syncfree; use a new folder"
            )
        if first["heading"] != heading:
            changed = sorted(
                key
                for key in first["heading"].keys() | heading.keys()
                if first["heading"].get(key) != heading.get(key)
            )
            raise JournalError(
                f"{path} belongs to a run that differs in: {', '.join(changed)}; use a new folder"
            )
        yield from entries[1:]
