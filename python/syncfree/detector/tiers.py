"""What a tier is, and which one serves this machine."""

from __future__ import annotations

import warnings
from typing import Any, Literal

from syncfree.detector.findings import Event, Recorder
from syncfree.errors import DetectorError, SyncWarning

TierChoice = Literal["auto", 0, 2, 3]
CHOICES: tuple[TierChoice, ...] = ("auto", 0, 2, 3)
BY_NAME: dict[str, TierChoice] = {str(choice): choice for choice in CHOICES}


class Tier:
    """A way to observe waits. Entered once, for the outermost region.

    Attributes:
        number: The number by which a user chooses it.
        note: What a report says about it besides the number; empty if there is nothing to say.
    """

    number: int
    note: str = ""

    def __enter__(self) -> Any:
        """Begins to record."""

    def __exit__(self, *_: Any) -> Any:
        """Records what is left and leaves torch as it was."""

    @property
    def seen(self) -> int | None:
        """How many operations on CUDA tensors ran so far; None if the tier does not count them.

        If the count does not grow within a region, the region judged nothing.
        """
        return None

    def enter_thread(self) -> None:
        """Called instead of `__enter__` for every further region, in the thread that opens it.

        Regions of several threads may overlap, and the region that entered the tier need not be the
        last to close.
        """

    def leave_thread(self) -> None:
        """Called instead of `__exit__` for all but the last region, in the thread that closes."""

    def drain(self) -> None:
        """Records what the calling thread did so far, because its scope is about to change."""

    def note_scope(self) -> None:
        """Notes that the calling thread has changed its scope."""

    def raise_at_call(self, on: bool) -> None:
        """Makes waits raise before they block, until it is turned off as often as it was turned on.

        Raises:
            DetectorError: The tier sees a wait only after it has begun.
        """
        raise DetectorError(
            f"raise_at='call' cannot work inside of a region that uses tier {self.number}, which "
            "sees a wait only after it began: give the outer region tier=2"
        )

    def event_of_error(self, error: BaseException) -> Event | None:
        """The wait that the tier prevented by raising this error; None for any other error."""
        return None


class TierUnavailableError(DetectorError):
    """A tier cannot work here and now; another one may."""


_said: set[str] = set()


def open_tier(choice: TierChoice, recorder: Recorder, *, raise_at_call: bool) -> tuple[Tier, str]:
    """Enters the requested tier, or with ``"auto"`` the one that sees most.

    Returns:
        The tier, and a note for the report, which says why it is not a higher tier; it may be
        empty.

    Raises:
        DetectorError: The requested tier cannot work here.
    """
    if choice != "auto":
        tier = _entered(choice, recorder)
        return tier, tier.note
    if not has_gpu():
        return _entered(0, recorder), "tier 0: torch sees no GPU here, so times are not known"
    if raise_at_call:
        return _entered(2, recorder), "tier 2: the one that raises before the host waits"
    try:
        tier = _entered(3, recorder)
        return tier, tier.note
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
    # Imported here, because each tier loads modules that the others do not need.
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
