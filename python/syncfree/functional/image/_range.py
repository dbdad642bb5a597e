"""The `data_range` argument."""

from __future__ import annotations

from numbers import Real


def parse_data_range(data_range: object) -> tuple[float, tuple[float, float] | None]:
    """Splits ``data_range`` into the range itself and the interval to clamp to, if one is given."""
    if type(data_range) is float and data_range > 0:  # the usual call, kept quick
        return data_range, None
    if isinstance(data_range, tuple):
        if len(data_range) != 2 or not all(isinstance(x, Real) for x in data_range):
            raise TypeError(
                "Expected argument `data_range` to be a number or a tuple of two numbers "
                f"(low, high), but got {data_range!r}."
            )
        low, high = (float(x) for x in data_range)
        if not low < high:
            raise ValueError(
                "Expected argument `data_range` to be a tuple (low, high) with low < high, "
                f"but got {data_range!r}."
            )
        return high - low, (low, high)
    if not isinstance(data_range, Real):
        raise TypeError(
            "Expected argument `data_range` to be a number or a tuple of two numbers (low, high), "
            f"but got {data_range!r}."
        )
    if not float(data_range) > 0:
        raise ValueError(f"Expected argument `data_range` to be positive, but got {data_range!r}.")
    return float(data_range), None
