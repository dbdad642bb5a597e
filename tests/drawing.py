"""How many inputs a test draws."""

from __future__ import annotations

from hypothesis import settings

ORDINARY = 150  # of the default profile, in conftest.py


def examples(count: int) -> settings:
    """So many in an ordinary run; more in proportion where `make fuzz` asks for more."""
    return settings(max_examples=max(1, count * settings.default.max_examples // ORDINARY))
