"""Classes from packages that only extras install, for annotations of public methods.

`typing.get_type_hints`, which generators of documentation and of command lines call, needs every
name in an annotation to exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table
else:
    Figure = Table = Any

__all__ = ["Figure", "Table"]
