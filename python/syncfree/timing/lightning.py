"""A callback that times the steps of a Lightning trainer.

It works with ``pytorch_lightning`` and ``lightning``, whichever is imported; importing this module
imports neither.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from syncfree.errors import SyncfreeError
from syncfree.timing.timer import EventTimer, require_timer

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")

_HOOKS = {  # the hooks in which a region begins and ends
    "train_batch": ("on_train_batch_start", "on_train_batch_end"),
    "backward": ("on_before_backward", "on_after_backward"),
    "validation_batch": ("on_validation_batch_start", "on_validation_batch_end"),
    "test_batch": ("on_test_batch_start", "on_test_batch_end"),
    "predict_batch": ("on_predict_batch_start", "on_predict_batch_end"),
}


def lightning_callback(timer: EventTimer | None = None) -> Any:
    """A callback for ``Trainer(callbacks=[...])`` that times batches and backward passes.

    The regions are ``train_batch``, ``backward`` (inside of it), ``validation_batch``,
    ``test_batch`` and ``predict_batch``. The time between two batches, in which data is loaded, is
    their ``host_gap_us`` and ``gpu_gap_us``. A batch that is interrupted leaves no sample.

    Args:
        timer: Default: a new :class:`EventTimer`.

    Returns:
        A ``Callback`` for each Lightning package that is imported; its ``timer`` is the timer.

    Raises:
        SyncfreeError: No Lightning package is installed.
        TypeError: ``timer`` is not a timer.

    Example:
        >>> callback = lightning_callback()  # doctest: +SKIP
        >>> Trainer(callbacks=[callback]).fit(model)  # doctest: +SKIP
        >>> print(callback.timer.summary())  # doctest: +SKIP
    """
    require_timer(timer, "lightning_callback")
    bases = _callback_classes()
    body: dict[str, Any] = {
        "__init__": _begin,
        "__reduce__": _copied,
        "__doc__": "Times the steps of a trainer.",
    }
    for region, (start, end) in _HOOKS.items():
        body[start] = _starting(region)
        body[end] = _ending(region)
    for hook in ("on_exception", "teardown"):
        body[hook] = _cancelling
    return type("TimerCallback", bases, body)(timer or EventTimer())


def _callback_classes() -> tuple[type, ...]:
    packages = [sys.modules[name] for name in _PACKAGES if name in sys.modules]
    for name in () if packages else _PACKAGES:
        try:
            packages.append(import_module(name))
            break
        except ImportError:
            continue
    if not packages:
        raise SyncfreeError(
            "lightning_callback needs Lightning: pip install lightning, or pytorch-lightning"
        )
    return tuple(dict.fromkeys(package.Callback for package in packages))


def _begin(self: Any, timer: EventTimer) -> None:
    self.timer = timer
    self._regions = {name: timer.region(name) for name in _HOOKS}
    self._open = set()


def _copied(self: Any) -> tuple[Any, ...]:
    return lightning_callback, (self.timer,)  # the class cannot be imported by a name


def _starting(region: str) -> Any:
    def hook(self: Any, *_: Any, **__: Any) -> None:
        self._regions[region].cancel()  # if a batch was skipped, its region is still open
        self._regions[region].start()
        self._open.add(region)

    return hook


def _ending(region: str) -> Any:
    def hook(self: Any, *_: Any, **__: Any) -> None:
        if region in self._open:
            self._open.remove(region)
            self._regions[region].stop()

    return hook


def _cancelling(self: Any, *_: Any, **__: Any) -> None:
    for region in self._open:
        self._regions[region].cancel()
    self._open.clear()
