"""What a call asks torch's allocator for.

Not what it is given: a block left by another test may be larger, and is not split where little
would be left of it.
"""

from __future__ import annotations

import torch


def requested() -> int:
    """Bytes held now."""
    return torch.cuda.memory_stats()["requested_bytes.all.current"]


def most_requested() -> int:
    """The most that was held since `torch.cuda.reset_peak_memory_stats()`."""
    return torch.cuda.memory_stats()["requested_bytes.all.peak"]
