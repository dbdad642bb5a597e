"""Where results go, and why one would overwrite a compared image or be compared the next time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from syncfree._output_places import why_no_file, why_no_folder
from syncfree.cli.compare.options import UsageError
from syncfree.cli.compare.pairs import EXTENSIONS, Pairing


@dataclass(frozen=True)
class Outputs:
    """Files that were asked for, and the folder for maps."""

    csv: Path | None = None
    json: Path | None = None
    plot: Path | None = None
    maps: Path | None = None

    def check(self, reference: Path, test: Path) -> None:
        """Refuse, before any work, what could not be written or would be compared the next time.

        Raises:
            UsageError: any of that.
            MissingExtraError: maps or a plot were asked for without matplotlib.
        """
        files = self._files()
        resolved = [file.resolve() for file in files]
        for file, place in zip(files, resolved, strict=True):
            if str(file) == "-":
                raise UsageError("results are written to files, as the table has standard output")
            if resolved.count(place) > 1:
                raise UsageError(f"{file} is asked for twice: one result would replace the other")
            refuse(why_no_file(file))
            if _is_compared(place, reference, test):
                raise _overwrites(file)
        if self.plot is not None:
            from syncfree.cli.compare.plots import check_plot

            check_plot(self.plot)
        if self.maps is None:
            return
        from syncfree.cli.compare.maps import palette

        palette()
        for folder in (reference, test):
            # Path.is_dir raises below a folder without search permission.
            if os.path.isdir(folder):  # noqa: PTH112
                self._refuse_maps_in(folder)
        refuse(why_no_folder(self.maps))

    def check_pairing(self, pairing: Pairing) -> None:
        """Refuse a file that is an image under another name, or lies in a folder reached by a link.

        Raises:
            UsageError: any of that.
        """
        files = self._files()
        if self.maps is not None:
            from syncfree.cli.compare.maps import map_file

            for folder in pairing.folders:
                self._refuse_maps_in(Path(folder))
            files += [map_file(self.maps, pair.name) for pair in pairing.pairs]
        if not files:
            return
        images = {_identity(path) for pair in pairing.pairs for path in (pair.reference, pair.test)}
        for file in files:
            identity = _identity(file)
            place = os.path.realpath(file)
            joins = os.path.dirname(place) in pairing.folders and _is_picture(place)  # noqa: PTH120
            if joins or (identity is not None and identity in images):
                raise _overwrites(file)

    def _files(self) -> list[Path]:
        return [file for file in (self.csv, self.json, self.plot) if file is not None]

    def _refuse_maps_in(self, folder: Path) -> None:
        assert self.maps is not None
        if self.maps.resolve().is_relative_to(folder.resolve()):
            raise UsageError(f"--maps is inside {folder}, where its files would be compared")


def refuse(problem: str) -> None:
    """Raise what is wrong, if anything is."""
    if problem:
        raise UsageError(problem)


def _overwrites(file: Path) -> UsageError:
    return UsageError(f"cannot write {file}: it is one of the images to be compared, or would be")


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode, by which a file is known under any name; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_compared(file: Path, reference: Path, test: Path) -> bool:
    """Whether a file is an input, or would be one the next time."""
    places = [given.resolve() for given in (reference, test)]
    return file in places or (
        _is_picture(str(file)) and any(file.is_relative_to(each) for each in places)
    )


def _is_picture(name: str) -> bool:
    return Path(name).suffix.lower() in EXTENSIONS
