"""Finds which picture of one folder belongs to which of the other."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from unicodedata import normalize

from syncfree.cli.compare.options import UsageError
from syncfree.cli.compare.problems import Problem

EXTENSIONS = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm"})
NO_EXTENSION = "(no extension)"


@dataclass(frozen=True)
class Pair:
    """A reference and the picture to judge; `name` is the reference's path in its folder."""

    name: str
    reference: Path
    test: Path


@dataclass
class Pairing:
    """Pairs in order of name, files without a partner, and counts of other files by extension.

    `folders` are the real paths of all that were walked, those behind links too.
    """

    pairs: list[Pair] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    folders: set[str] = field(default_factory=set)


class NothingPairedError(UsageError):
    """There is nothing to compare; carries what was found instead."""

    def __init__(self, message: str, pairing: Pairing) -> None:
        super().__init__(message)
        self.pairing = pairing


def find_pairs(reference: Path, test: Path, suffix: str = "") -> Pairing:
    """Pair the pictures of two folders, or two files.

    Folders are walked recursively, following symbolic links; names that begin with a dot are left
    out. A file pairs with the one of the same relative path; a file without such a partner pairs by
    the path without its extension, so that `a/x.png` meets `a/x.jpg`. If a path without extension
    leaves more than one choice, all files concerned become one `ambiguous` problem.

    Args:
        reference: folder of reference pictures, or one file.
        test: folder of pictures to judge, or one file.
        suffix: what names in the test folder add to their partners' names, before the extension,
            such as `_x4` in `a_x4.png`.

    Raises:
        UsageError: a path cannot be reached, or one is a folder and the other a file.
        NothingPairedError: a folder holds no picture.
    """
    for path in (reference, test):
        try:
            path.stat()
        except FileNotFoundError:
            raise UsageError(f"no such file or folder: {path}") from None
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from error
    if reference.is_dir() != test.is_dir():
        raise UsageError(f"expected two folders or two files, got {reference} and {test}")
    if not reference.is_dir():
        return Pairing(pairs=[Pair(reference.name, reference, test)])

    pairing = Pairing()
    references = _pictures(reference, pairing)
    tests = _pictures(test, pairing)
    for folder, found in ((reference, references), (test, tests)):
        if not found:
            kinds = " ".join(sorted(EXTENSIONS))
            raise NothingPairedError(f"{folder} has no images ({kinds})", pairing)
    tests = _without_suffix(tests, suffix, pairing)
    partners = {name: name for name in references.keys() & tests.keys()}
    _pair_by_stem(references, tests, partners, pairing)
    pairing.pairs = [
        Pair(name, references[name], tests[partners[name]]) for name in sorted(partners)
    ]
    return pairing


def common_suffix(reference: Path, test: Path) -> str:
    """What all names in the test folder add to the names of as many pictures in the other.

    Empty if there is no such suffix.
    """
    stems = [sorted(_by_stem(_pictures(folder, Pairing()))) for folder in (reference, test)]
    if len(stems[0]) != len(stems[1]):
        return ""
    rests = {
        there.removeprefix(here) if there.startswith(here) else ""
        for here, there in zip(*stems, strict=True)
    }
    return rests.pop() if len(rests) == 1 else ""


def _without_suffix(tests: dict[str, Path], suffix: str, pairing: Pairing) -> dict[str, Path]:
    """The test pictures by their partners' names; a name without the suffix is a problem."""
    found: dict[str, Path] = {}
    for name, path in sorted(tests.items()):
        extension = PurePosixPath(name).suffix
        stem = name.removesuffix(extension)
        if not stem.endswith(suffix):
            reason = f"its name does not end in {suffix!r}, as --suffix has it"
            pairing.problems.append(Problem("unpaired", (str(path),), reason))
        else:
            found[stem.removesuffix(suffix) + extension] = path
    return found


def _pair_by_stem(
    references: dict[str, Path], tests: dict[str, Path], partners: dict[str, str], pairing: Pairing
) -> None:
    reference_stems, test_stems = _by_stem(references), _by_stem(tests)
    reference_twins, test_twins = _by_normal_form(reference_stems), _by_normal_form(test_stems)
    taken = set(partners.values())
    for stem in sorted(reference_stems.keys() | test_stems.keys()):
        here, there = reference_stems.get(stem, []), test_stems.get(stem, [])
        left_here = [name for name in here if name not in partners]
        left_there = [name for name in there if name not in taken]
        if not left_here or not left_there:
            but = _but_in_other_unicode(stem, test_twins)
            for path in [references[name] for name in left_here]:
                pairing.problems.append(_alone(path, f"the test folder{but}"))
            but = _but_in_other_unicode(stem, reference_twins)
            for path in [tests[name] for name in left_there]:
                pairing.problems.append(_alone(path, f"the reference folder{but}"))
        elif len(here) == len(there) == 1:
            partners[here[0]] = there[0]
        else:
            files = [references[name] for name in left_here] + [tests[name] for name in left_there]
            pairing.problems.append(
                Problem(
                    "ambiguous",
                    tuple(map(str, files)),
                    f"several files are called {PurePosixPath(stem).name!r} apart from the "
                    "extension; give partners the same name",
                )
            )


def _alone(path: Path, other: str) -> Problem:
    """The problem of a file that has no partner."""
    try:
        path.stat()
    except FileNotFoundError:
        return Problem("unreadable", (str(path),), "a link to nothing")
    except OSError as error:
        return Problem("unreadable", (str(path),), error.strerror or str(error))
    return Problem("unpaired", (str(path),), f"no image of this name in {other}")


def _by_normal_form(stems: Iterable[str]) -> dict[str, str]:
    return {normalize("NFC", stem): stem for stem in stems if not stem.isascii()}


def _but_in_other_unicode(stem: str, others: dict[str, str]) -> str:
    """A hint at a name that looks the same; in escapes, since the characters look alike."""
    twin = None if stem.isascii() else others.get(normalize("NFC", stem))
    if twin is None or twin == stem:
        return ""
    return (
        f", but one in another normal form of Unicode, as NFD in place of NFC: {twin!a}, while "
        f"this is {stem!a}; rename one of them"
    )


def _by_stem(names: Iterable[str]) -> dict[str, list[str]]:
    stems: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        stems[str(PurePosixPath(name).with_suffix(""))].append(name)
    return stems


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _pictures(root: Path, pairing: Pairing) -> dict[str, Path]:
    found: dict[str, Path] = {}

    def walk(folder: Path, above: frozenset[str]) -> None:
        real = os.path.realpath(folder)
        if real in above:
            reason = "this link leads back to a folder above it"
            pairing.problems.append(Problem("unreadable", (str(folder),), reason))
            return
        pairing.folders.add(real)
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            reason = error.strerror or str(error)
            pairing.problems.append(Problem("unreadable", (str(folder),), reason))
            return
        for entry in entries:
            path = Path(entry.path)
            if entry.name.startswith("."):
                continue  # such as the ._x.png that macOS writes beside x.png
            if _is_folder(entry):
                walk(path, above | {real})
            elif path.suffix.lower() in EXTENSIONS:
                found[path.relative_to(root).as_posix()] = path
            else:
                pairing.ignored[path.suffix.lower() or NO_EXTENSION] += 1

    walk(root, frozenset())
    return found
