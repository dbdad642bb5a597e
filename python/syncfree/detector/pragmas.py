"""Comments that allow a wait: `# sync-ok: reason`."""

from __future__ import annotations

import functools
import linecache
import re

_PRAGMA = re.compile(r"#\s*sync-ok\b:?[ \t]*(.*)")


def has_empty_pragma(file: str, line: int) -> bool:
    """Whether a line says `# sync-ok` without the reason that it needs."""
    found = _PRAGMA.search(linecache.getline(file, line))
    return found is not None and not found[1].strip()


@functools.lru_cache(maxsize=4096)
def pragma(file: str, line: int) -> str | None:
    """The reason of a `# sync-ok: reason` on a line, or in the comment right above it.

    None without one. A pragma without a reason allows nothing.
    """
    text = linecache.getline(file, line)
    while text:
        found = _PRAGMA.search(text)
        if found:
            return found[1].strip() or None
        # Above, only lines of their own: the pragma of another statement is not meant for this one.
        line -= 1
        above = linecache.getline(file, line)
        text = above if above.lstrip().startswith("#") else ""
    return None
