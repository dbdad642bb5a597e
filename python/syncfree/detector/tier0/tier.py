"""The tier as a context manager."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Any

import torch

# Imported before anything is replaced: otherwise the first operation under a dispatch mode would
# import it, and it would see the replacements.
import torch._dynamo
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from syncfree.detector.findings import Recorder
from syncfree.detector.tier0 import (
    amp,
    device_module,
    devices,
    distributed,
    factories,
    recording,
    storages,
    surroundings,
    tensors,
)
from syncfree.detector.tier0.following import FollowMarks
from syncfree.detector.tier0.replacing import Replacements
from syncfree.detector.tiers import Tier
from syncfree.errors import DetectorError

_PARTS = (
    tensors,
    factories,
    storages,
    amp,
    devices,
    device_module,
    surroundings,
    distributed,
)


class Tier0(Tier):
    """Runs the code inside on the CPU as if there were one GPU, and records its waits.

    For the running code ``torch.cuda.is_available()`` is True, and tensors that it moves to
    ``"cuda"`` are CPU tensors with a mark. Times are not known: ``blocked_us`` of the events is
    None. Threads that are started inside are followed. On exit torch is as it was before, whatever
    happened inside.

    Args:
        recorder: Gets the events before the wait; an error that it raises reaches the line that
            waits.

    Raises:
        DetectorError: On entry, if torch sees a real GPU.

    Example:
        >>> import torch
        >>> from syncfree.detector.findings import Recorder
        >>> from syncfree.detector.tier0 import Tier0
        >>> recorder = Recorder()
        >>> with Tier0(recorder):
        ...     total = torch.ones(3, device="cuda").sum()
        ...     value = total.item()
        >>> [finding.event.api for finding in recorder.findings()]
        ['Tensor.item']
    """

    number = 0

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._modes = threading.local()

    @property
    def seen(self) -> int:
        """How many operations on tensors of the virtual device ran so far."""
        return recording.device.seen

    def __enter__(self) -> Tier0:
        _installation.enter()
        self.enter_thread()
        recording.listen(self._recorder)
        return self

    def __exit__(self, *_: Any) -> None:
        recording.leave(self._recorder)
        try:
            self.leave_thread()
        finally:
            _installation.leave()

    def enter_thread(self) -> None:
        """Follows marks in the calling thread too, because dispatch modes are per thread."""
        follows = any(isinstance(mode, FollowMarks) for mode in _get_current_dispatch_mode_stack())
        mode = nullcontext() if follows else FollowMarks()
        mode.__enter__()
        self._modes.__dict__.setdefault("entered", []).append(mode)

    def leave_thread(self) -> None:
        """Undoes one `enter_thread` of the calling thread."""
        if self._modes.__dict__.get("entered"):
            self._modes.entered.pop().__exit__(None, None, None)

    def raise_at_call(self, on: bool) -> None:
        """Nothing to do: events are recorded before the wait, so the region can raise there."""


class _Installation:
    """The replacements, shared by all open tiers: the first makes them, the last undoes them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._replacements = Replacements()

    def enter(self) -> None:
        with self._lock:
            if self._users == 0:
                self._install()
            self._users += 1

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._stance.__exit__(None, None, None)
                self._replacements.restore()
                torch.set_autocast_dtype("cpu", self._autocast_dtype)

    def _install(self) -> None:
        if torch.cuda.is_available():
            raise DetectorError(
                "tier 0 stands in for a GPU, but torch sees a real one: use tier 2, 3 or auto"
            )
        self._autocast_dtype = torch.get_autocast_dtype("cpu")
        try:
            for part in _PARTS:
                part.install(self._replacements)
            self._replacements.wrap(threading.Thread, "_bootstrap_inner", _following)
            self._replacements.spread()
        except BaseException:
            self._replacements.restore()
            raise
        # Code that was compiled before runs eagerly too: it would hide its operations.
        self._stance: Any = torch.compiler.set_stance("force_eager")
        self._stance.__enter__()


_installation = _Installation()


def _following(old: Callable[..., Any]) -> Callable[..., Any]:
    """Enters the dispatch mode in new threads too, because dispatch modes are per thread."""

    @wraps(old)
    def bootstrap(self: threading.Thread) -> None:
        with FollowMarks():
            old(self)

    return bootstrap
