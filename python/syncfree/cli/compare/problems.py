"""Files that could not be compared, with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from syncfree.errors import SyncfreeError

ProblemKind = Literal[
    "unpaired",  # no partner on the other side
    "ambiguous",  # several possible partners
    "unreadable",  # missing, damaged or not a picture
    "unsupported",  # readable, but a comparison would be wrong or lossy
    "size-mismatch",  # the two pictures differ in width or height
    "too-small",  # smaller than the metric's window, or than the cropped border
    "unwritable",  # a map could not be written
    "rank-lost",  # a process died, failed or was stuck; others did its part
    "unfinished",  # not compared, because of that
    "internal",  # an error in syncfree itself
]


@dataclass(frozen=True)
class Problem:
    """One thing that kept files from being compared (or a map from being written)."""

    kind: ProblemKind
    files: tuple[str, ...]
    reason: str


class PictureError(SyncfreeError):
    """A pair of pictures cannot be compared; carries what to report."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = tuple(dict.fromkeys(problems))  # of a file compared with itself, once
        super().__init__("; ".join(problem.reason for problem in self.problems))


def refused(kind: ProblemKind, files: tuple[Path, ...], reason: str) -> PictureError:
    """The error for one problem."""
    return PictureError(Problem(kind, tuple(map(str, files)), reason))
