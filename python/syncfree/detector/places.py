"""Whether a file is the program's own, or that of an installed package or the standard library."""

from __future__ import annotations

import functools
import re
import sysconfig

_STANDARD = "stdlib/"
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/(.+)", re.DOTALL)
_STANDARD_HERE = f"{sysconfig.get_path('stdlib')}/"
_STANDARD_ANYWHERE = re.compile(r".*/lib(?:64)?/python3\.\d+t?/(.+)", re.DOTALL)


@functools.lru_cache(maxsize=4096)
def installed_name(file: str) -> str:
    """A name that an installed file has on every machine; empty for the program's own files.

    Example:
        >>> from syncfree.detector.places import installed_name
        >>> installed_name("/venv/lib/python3.12/site-packages/torchmetrics/metric.py")
        'site-packages/torchmetrics/metric.py'
        >>> installed_name("/usr/lib/python3.12/logging/__init__.py")
        'stdlib/logging/__init__.py'
        >>> installed_name("/project/train.py")
        ''
    """
    of_package = _PACKAGES.match(file)
    if of_package:
        return f"site-packages/{of_package[1]}"
    if file.startswith(_STANDARD_HERE):
        return _STANDARD + file[len(_STANDARD_HERE) :]
    of_standard = _STANDARD_ANYWHERE.match(file)
    return _STANDARD + of_standard[1] if of_standard else ""


def in_standard_library(file: str) -> bool:
    """Whether a file belongs to Python's standard library."""
    return installed_name(file).startswith(_STANDARD)
