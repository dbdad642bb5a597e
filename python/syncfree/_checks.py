"""Raises what CUDA kernels found wrong with values and could not raise themselves."""

from __future__ import annotations

import torch

from syncfree._ops import registry  # noqa: F401  (loads the libraries)

# csrc/core/error_record.h
_ARGUMENTS = {1: "target", 2: "preds"}

# csrc/accuracy/accuracy_math.h keeps the numbers below for what is no integer.
_LEAST_LABEL = -(2**63) + 2


def check_errors() -> None:
    """Waits for all CUDA devices and raises if a metric met values out of range since last time.

    A metric on CUDA does not wait to look at its values. A label out of range is left out of the
    counts, the result becomes NaN, and word of it is left where the host can read it: here. This is
    the one function that waits. On the CPU such labels raise at once and this does nothing.

    Returns:
        Nothing, if all was well.

    Raises:
        RuntimeError: Names the argument, the first bad value and its flat index, how many there
            were in that call, and the device. The record is cleared.

    Example:
        >>> import syncfree
        >>> syncfree.check_errors()
    """
    if not torch.cuda.is_initialized():
        return
    for device in range(torch.cuda.device_count()):
        # A look at a device that was never used would open a context there.
        if not torch.ops.syncfree.has_error_record(device):
            continue
        torch.cuda.synchronize(device)
        kind, index, number, count = torch.ops.syncfree.take_error_record(device).tolist()
        if count:
            value = "a fraction or NaN" if number < _LEAST_LABEL else number
            raise RuntimeError(
                f"Detected the following values in `{_ARGUMENTS.get(kind, 'input')}` on "
                f"cuda:{device}: {value} at flat index {index}, the first of {count} out of range. "
                "They were left out and that result is NaN. Correct the labels, or pass "
                "`ignore_index`, or `validate_args=False` to go without this check."
            )
