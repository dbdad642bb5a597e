"""Files that a build put beside the sources. Standard library only."""

from __future__ import annotations

from pathlib import Path


def find_file(name: str) -> Path | None:
    """Finds a file of this installation by its path in the package; None if there is none.

    An editable installation keeps built files apart from the sources, so every folder of the
    package's ``__path__`` is searched.
    """
    import syncfree

    for place in syncfree.__path__:
        path = Path(place) / name
        if path.is_file():
            return path
    return None
