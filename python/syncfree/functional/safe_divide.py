"""Division that does not make the host wait to find zero denominators."""

from __future__ import annotations

from torch import Tensor

from syncfree._ops.safe_divide import safe_divide as _op
from syncfree.functional._arguments import number, require_tensors
from syncfree.functional._gradients import without_gradient


def safe_divide(num: Tensor, denom: Tensor, zero_division: float = 0.0) -> Tensor:
    """Divides elementwise; where the denominator is zero the result is ``zero_division``.

    One kernel, on the tensors' device and the current stream; the host never looks at a value.

    Args:
        num: Numerator of any shape and layout; floating, integer or bool.
        denom: Denominator that broadcasts with ``num``, on the same device.
        zero_division: The result where ``denom`` is 0, even if ``num`` is NaN there; may be NaN or
            infinite.

    Returns:
        A new contiguous tensor of the broadcast shape. Integers count as float32; two floating
        dtypes promote as in torch. Each quotient is computed in float64 and rounded once. Where the
        denominator is not 0, a NaN on either side gives NaN. The result has no gradient.

    Raises:
        RuntimeError: If the shapes do not broadcast, the devices differ, or a dtype is neither
            floating, integer nor bool.
        TypeError: If ``num`` or ``denom`` is not a dense tensor, or ``zero_division`` no number.
        NotImplementedError: In the backward pass, which is not implemented.

    Example:
        >>> import torch
        >>> from syncfree.functional import safe_divide
        >>> safe_divide(torch.tensor([1, 2, 3]), torch.tensor([0, 1, 2]))
        tensor([0.0000, 2.0000, 1.5000])
    """
    require_tensors(num, denom, ("num", "denom"))
    result: Tensor = without_gradient(_op, num, denom, number("zero_division", zero_division))
    return result
