"""Where the headers, the library and the CMake package for C++ programs are.

Standard library only: `python -m syncfree --cmake-dir` is called by other people's builds.
"""

from __future__ import annotations

from pathlib import Path

from syncfree._installation import find_file
from syncfree.errors import LibraryError


def cmake_dir() -> Path:
    """The folder for CMake's ``syncfree_DIR``: what `syncfree --cmake-dir` prints.

    Raises:
        LibraryError: If this installation has no C++ part.

    Example:
        >>> from syncfree._cpp import cmake_dir
        >>> cmake_dir().name
        'syncfree'
    """
    return _find("lib/cmake/syncfree/syncfreeConfig.cmake").parent


def include_dir() -> Path:
    """The folder of the headers, for ``-I``: what `syncfree --include-dir` prints.

    Raises:
        LibraryError: If this installation has no C++ part.
    """
    return _find("include/syncfree/c_api.h").parent.parent


def lib_dir() -> Path:
    """The folder of the library, for ``-L`` and the run path: what `syncfree --lib-dir` prints.

    Raises:
        LibraryError: If this installation has no C++ part.
    """
    return _find("lib/libsyncfree_core.so").parent


def _find(name: str) -> Path:
    path = find_file(name)
    if path is not None:
        return path
    import syncfree

    raise LibraryError(
        f"{name} is missing from the installed package {list(syncfree.__path__)}: this is a source "
        "tree, or the installation is incomplete. Install it again: "
        "pip install --force-reinstall --no-deps ."
    )
