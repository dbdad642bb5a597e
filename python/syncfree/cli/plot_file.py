"""Checks, before any work, whether a plot can be drawn and written as asked."""

from __future__ import annotations

from pathlib import Path

from syncfree.errors import MissingExtraError


def unknown_format(path: Path, what: str) -> str:
    """Why matplotlib writes no such file, by its extension; empty if it does.

    Args:
        path: The file.
        what: What needs the plot, for the error.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        raise MissingExtraError(what, "plot") from error
    known = FigureCanvasBase.get_supported_filetypes()
    wanted = path.suffix[1:].lower()
    if not wanted or wanted in known:  # without one, matplotlib adds its own
        return ""
    return (
        f"cannot write {path}: no image format is called {wanted!r}; "
        f"known are {', '.join(sorted(known))}"
    )
