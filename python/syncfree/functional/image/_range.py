"""The `data_range` argument."""

from __future__ import annotations

from syncfree.functional._arguments import number

_EXPECTED = "a number or a tuple of two numbers (low, high)"


def parse_data_range(data_range: object) -> tuple[float, tuple[float, float] | None]:
    """Splits ``data_range`` into the range itself and the interval to clamp to, if one is given."""
    if type(data_range) is float and data_range > 0:  # the usual call, kept quick
        return data_range, None
    if isinstance(data_range, tuple):
        if len(data_range) != 2:
            raise TypeError(
                f"Expected argument `data_range` to be {_EXPECTED}, but got {data_range!r}."
            )
        low, high = (number("data_range", x, _EXPECTED) for x in data_range)
        if not low < high:
            raise ValueError(
                "Expected argument `data_range` to be a tuple (low, high) with low < high, "
                f"but got {data_range!r}."
            )
        return high - low, (low, high)
    value = number("data_range", data_range, _EXPECTED)
    if not value > 0:
        raise ValueError(f"Expected argument `data_range` to be positive, but got {data_range!r}.")
    return value, None
