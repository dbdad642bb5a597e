"""Raises what CUDA kernels found wrong with values and could not raise themselves."""

from __future__ import annotations

import torch

from syncfree import _errors


def check_errors() -> None:
    """Waits for all CUDA devices and raises if a metric met values out of range since last time.

    A metric on CUDA does not wait to look at its values. A label out of range is left out of the
    counts, the result becomes NaN, and a record of it is left where the host can read it: at the
    next call of the same metric, at its ``compute()``, or here. This is the one function that
    waits, so that nothing is missed. On the CPU such labels raise at once and this does nothing.

    Returns:
        Nothing, if all was well.

    Raises:
        RuntimeError: Names the argument, the first bad value and its flat index, how many there
            were in that call, what was allowed, the device, and the metric with the line of the
            call; a line for each metric. The records are cleared.

    Example:
        >>> import syncfree
        >>> syncfree.check_errors()
    """
    if not torch.cuda.is_initialized():
        return
    _errors.wait()
    _errors.raise_all()
