"""What a tier is, and which one serves this machine."""

from __future__ import annotations

import warnings
from typing import Any, Literal, Protocol

from syncfree.detector.findings import Recorder
from syncfree.errors import DetectorError, SyncWarning

TierChoice = Literal["auto", 0, 2, 3]
CHOICES: tuple[TierChoice, ...] = ("auto", 0, 2, 3)
BY_NAME: dict[str, TierChoice] = {str(choice): choice for choice in CHOICES}


class Tier(Protocol):
    """A way to see waits. Entered once, for the outermost region.

    A tier may have more methods. ``drain()`` records what the calling thread did so far and the
    tier still holds back: a scope is about to change. ``note_scope()`` says, in the same thread,
    that it has changed. ``raise_at_call(on)`` makes waits raise
    before they block. ``enter_thread()`` and ``leave_thread()`` stand for `__enter__` and
    `__exit__` of every further region, in the thread that opens or closes it: regions of several
    threads may overlap, and the one that entered the tier need not be the last. ``seen`` counts
    the operations on tensors of the GPU so far: where it does not grow, nothing was judged.
    """

    name: str
    number: int

    def __enter__(self) -> Any:
        """Begins to record."""

    def __exit__(self, *_: Any) -> Any:
        """Records what is left and leaves torch as it was."""


class TierUnavailableError(DetectorError):
    """A tier cannot work here and now; another one may."""


_said: set[str] = set()


def open_tier(choice: TierChoice, recorder: Recorder, *, raise_at_call: bool) -> tuple[Tier, str]:
    """Enters the tier asked for, or with ``"auto"`` the one that sees most.

    Returns:
        The tier, and a note that says why it is not a higher one; empty if there is none.

    Raises:
        DetectorError: The tier asked for cannot work here.
    """
    if choice != "auto":
        tier = _entered(choice, recorder)
        return tier, getattr(tier, "note", "")
    if not has_gpu():
        return _entered(0, recorder), "tier 0: torch sees no GPU here, so times are not known"
    if raise_at_call:
        return _entered(2, recorder), "tier 2: the one that raises before the host waits"
    try:
        tier = _entered(3, recorder)
        return tier, getattr(tier, "note", "")
    except TierUnavailableError as error:
        note = f"tier 2 (torch's sync debug mode), which misses some waits: {error}"
        if note not in _said:
            _said.add(note)
            warnings.warn(note, SyncWarning, stacklevel=4)
        return _entered(2, recorder), note


def _entered(number: int, recorder: Recorder) -> Tier:
    tier = _made(number, recorder)
    tier.__enter__()
    return tier


def _made(number: int, recorder: Recorder) -> Tier:
    if number in (2, 3) and not has_gpu():
        raise TierUnavailableError(
            f"tier {number} of the sync detector needs an NVIDIA GPU and a torch for CUDA, but "
            "torch.cuda.is_available() is False: use tier 0 or auto"
        )
    # Each loads what the others do without.
    if number == 0:
        from syncfree.detector.tier0 import Tier0

        return Tier0(recorder)
    if number == 2:
        from syncfree.detector.tier2 import Tier2

        return Tier2(recorder)
    from syncfree.detector.tier3 import Tier3

    return Tier3(recorder)


def has_gpu() -> bool:
    """Whether tiers that need a GPU may work here."""
    import torch

    return torch.cuda.is_available()
