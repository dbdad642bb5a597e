"""Checks options of SSIM that can be checked before there is an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syncfree._ops.ms_ssim import NORMALIZE
from syncfree.functional._arguments import integer, number, text_of
from syncfree.functional.image._range import parse_data_range


def gaussian_flag(value: Any) -> bool:
    """``gaussian_kernel`` as a bool; refuses numbers: other metrics take a range here."""
    if type(value) is bool:
        return value
    if value is None or (type(value) is int and value == 0):  # neither can be a data range
        return False
    if type(value).__name__ in ("bool", "bool_"):  # numpy's
        return bool(value)
    raise TypeError(
        f"Expected argument `gaussian_kernel` to be True or False, but got {text_of(value)}. "
        "Options are given by name, such as `data_range=1.0`."
    )


def check_ssim_options(
    data_range: Any, gaussian_kernel: Any, sigma: Any, kernel_size: Any, k1: Any, k2: Any
) -> None:
    """Raises at construction the errors that otherwise the first batch would raise."""
    gaussian_flag(gaussian_kernel)
    if data_range is not None:
        parse_data_range(data_range)
    number("k1", k1), number("k2", k2)
    sizes, sigmas = _entries(kernel_size), _entries(sigma)
    if not all(size > 0 and size % 2 for size in (integer("kernel_size", s) for s in sizes)):
        raise ValueError(f"Expected `kernel_size` to have odd positive number. Got {kernel_size}.")
    if not all(number("sigma", each) > 0 for each in sigmas):
        raise ValueError(f"Expected `sigma` to have positive number. Got {sigma}.")


def check_betas(betas: object) -> None:
    """Raises ValueError unless the exponents of the scales are a tuple of floats."""
    if not isinstance(betas, tuple):
        raise ValueError(
            "Argument `betas` is expected to be of a type tuple, but got "
            f"{type(betas).__name__}. Write `(0.5, 0.5)`, one number for each scale."
        )
    if not all(isinstance(beta, float) for beta in betas):
        raise ValueError(
            f"Argument `betas` is expected to be a tuple of floats, but got {betas!r}. Write "
            "`1.0` for 1."
        )


def normalize_code(normalize: Any) -> int:
    """``normalize`` as the ops take it."""
    try:
        return NORMALIZE[normalize or None]
    except (KeyError, TypeError):
        raise ValueError(
            "Argument `normalize` to be expected either `None` or one of 'relu' or 'simple', "
            f"but got {normalize!r}."
        ) from None


def _entries(given: Any) -> Sequence[Any]:
    return given if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
