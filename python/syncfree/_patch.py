"""Replaces TorchMetrics' metrics by ours, for code that cannot be edited."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, TracebackType
from typing import Any

from syncfree._torchmetrics import require

# TorchMetrics' own isinstance checks use this module's MetricCollection, and have to stay true for
# collections made before the patch.
_LEFT_ALONE = frozenset({"torchmetrics.collections"})

_swapped: list[tuple[ModuleType, str, Any, Any]] = []
_active: set[Patch] = set()


class Patch:
    """What `patch_torchmetrics` returns: undoes it, once, by a call or at the end of a block."""

    def undo(self) -> None:
        """Puts TorchMetrics' objects back, unless another patch still stands."""
        _active.discard(self)
        if _active:
            return
        while _swapped:
            module, name, theirs, ours = _swapped.pop()
            if vars(module).get(name) is ours:  # and not what someone else put there since
                setattr(module, name, theirs)

    def __enter__(self) -> Patch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.undo()


def patch_torchmetrics() -> Patch:
    """Replaces TorchMetrics' metrics by ours, in all modules but ``torchmetrics.collections``.

    For code that imports from ``torchmetrics`` and cannot be edited; elsewhere edit the import.
    Call it before that code is imported: a name that ``from torchmetrics import Accuracy`` bound
    earlier keeps its old meaning, and so do metrics that exist already. Our classes are subclasses,
    so ``isinstance`` with TorchMetrics' classes holds for our metrics. For metrics made before the
    patch it does not hold while the patch is active, since the name then stands for our class.

    The names change for the whole process and every thread. Patches may be nested in any order;
    the last one to be undone puts TorchMetrics' objects back. Until then `pickle` refuses metrics
    of the replaced classes, because it finds another class under their name.

    Returns:
        A patch with a method ``undo``, also usable as ``with patch_torchmetrics():``.

    Raises:
        MissingExtraError: If TorchMetrics is not installed.

    Example:
        >>> import syncfree, torchmetrics
        >>> with syncfree.patch_torchmetrics():
        ...     metric = torchmetrics.classification.BinaryAccuracy()
        >>> type(metric) is syncfree.BinaryAccuracy
        True
        >>> torchmetrics.classification.BinaryAccuracy is syncfree.BinaryAccuracy
        False
    """
    require("syncfree.patch_torchmetrics")
    replacements = _ours()  # imported before the swap: their bases must be TorchMetrics' own
    patch = Patch()
    if not _active:
        for module, name in _places(replacements):
            theirs, ours = vars(module)[name], replacements[name]
            _swapped.append((module, name, theirs, ours))
            setattr(module, name, ours)
    _active.add(patch)
    return patch


def _ours() -> dict[str, Any]:
    """Our objects by the names they share with TorchMetrics'."""
    from syncfree import classification, collections, functional, image

    packages = classification, image, functional, functional.classification
    ours = {name: getattr(package, name) for package in packages for name in package._OWN}
    return ours | {"MetricCollection": collections.MetricCollection}


def _places(names: dict[str, Any]) -> Iterator[tuple[ModuleType, str]]:
    """Where TorchMetrics offers the names: modules that define them or list them."""
    for path, module in list(sys.modules.items()):
        if path.partition(".")[0] != "torchmetrics" or path in _LEFT_ALONE:
            continue
        for name in names.keys() & vars(module).keys():
            value = vars(module)[name]
            is_defined = getattr(value, "__module__", "") == path
            is_listed = name in getattr(module, "__all__", ())
            if (is_defined or is_listed) and not isinstance(value, ModuleType):
                yield module, name
