"""From which size on an asynchronous copy from pageable memory makes the host wait.

Below it the driver copies the data to a buffer of its own and returns. NVIDIA documents neither the
size nor that it stays the same, so it is measured once per process, behind a spinning kernel.
"""

from __future__ import annotations

from typing import Any

from syncfree import _runtime
from syncfree.detector.tier3.modes import beneath_modes
from syncfree.detector.tier3.spin import Spin

_SMALLEST = 12  # 4 KiB, as a power of two
_LARGEST = 24
# Many times the duration of the largest copy by itself.
_SPIN_MS = 20.0

# The measured size, once there is one; None if such copies never wait or it cannot be measured.
_measured: list[int | None] = []


def waiting_size() -> int | None:
    """From how many bytes on such a copy waits; None if that is not known."""
    if not _measured:
        import torch

        if not torch.cuda.is_initialized() or torch.cuda.is_current_stream_capturing():
            return None
        with _runtime.OwnCalls(), beneath_modes():
            _measured.append(_measure(torch))
    return _measured[0]


def _measure(torch: Any) -> int | None:
    try:
        return _search(torch)
    except (RuntimeError, AttributeError):  # no memory, or a torch without `_sleep`
        return None


def _search(torch: Any) -> int | None:
    stream = torch.cuda.Stream()
    host = torch.zeros(1 << _LARGEST, dtype=torch.uint8, device="cpu")
    with torch.cuda.stream(stream):
        device = torch.zeros(1 << _LARGEST, dtype=torch.uint8, device="cuda")
        spin = Spin(stream)

        def waits(power: int) -> bool:
            return all(once(1 << power) for _ in range(2))

        def once(size: int) -> bool:
            stream.synchronize()
            gate = spin.start(_SPIN_MS)
            device[:size].copy_(host[:size], non_blocking=True)
            return bool(gate.query())

        waits(_SMALLEST)  # the first call loads code
        if not waits(_LARGEST):
            return None
        low, high = _SMALLEST - 1, _LARGEST  # `high` waits, `low` does not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if waits(middle) else (middle, high)
        stream.synchronize()
    return 1 << high
