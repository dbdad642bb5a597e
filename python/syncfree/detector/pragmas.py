"""Comments that allow a wait: `# sync-ok: reason`."""

from __future__ import annotations

import functools
import linecache
import re

_PRAGMA = re.compile(r"#\s*sync-ok\b:?[ \t]*(.*)")


def has_empty_pragma(file: str, line: int) -> bool:
    """Whether a line has a `# sync-ok` without the required reason."""
    found = _PRAGMA.search(linecache.getline(file, line))
    return found is not None and not found[1].strip()


@functools.lru_cache(maxsize=4096)
def pragma(file: str, line: int) -> str | None:
    """The reason given by `# sync-ok: reason` on a line, or in the comment lines right above it.

    None if there is none. A pragma without a reason allows nothing.
    """
    text = linecache.getline(file, line)
    while text:
        found = _PRAGMA.search(text)
        if found:
            return found[1].strip() or None
        # Above the line only pure comment lines count: a comment behind another statement is for
        # that statement.
        line -= 1
        above = linecache.getline(file, line)
        text = above if above.lstrip().startswith("#") else ""
    return None
