"""Resolves submodules that syncfree does not have to TorchMetrics' modules.

`syncfree.text` *is* `torchmetrics.text`, one object with two entries in `sys.modules`. A module of
our own that only passed names on would differ from it as soon as someone sets an attribute, reloads
it or asks `inspect` for its source.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType

from syncfree._torchmetrics import counterpart, is_installed, require


class TorchMetricsFinder(MetaPathFinder, Loader):
    """Finds modules below ``syncfree`` that no other finder knows and TorchMetrics has.

    It comes first in `sys.meta_path`. Otherwise a file of TorchMetrics would be found through the
    path of a TorchMetrics package that has a name of ours, and run a second time under our name.
    For any other import it costs one comparison.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's specification; imports nothing."""
        if not fullname.startswith("syncfree."):
            return None
        package, _, name = fullname.rpartition(".")
        if getattr(sys.modules.get(package), "__name__", package) == package:
            for finder in sys.meta_path:
                # Python too passes over finders of the old protocol, which lack the method.
                find = getattr(finder, "find_spec", None)
                if finder is not self and find and (spec := find(fullname, path, target)):
                    return spec  # type: ignore[no-any-return]
            if name.startswith("_"):
                return None
        if is_installed():
            theirs = _find_in_torchmetrics(fullname)
        else:
            from syncfree._torchmetrics_names import has

            # Importing it raises an error that says what to install.
            theirs = ModuleSpec(fullname, None) if has(package, name) else None
        if theirs is None:
            return None
        spec = ModuleSpec(fullname, self, origin=theirs.origin)
        spec.submodule_search_locations = theirs.submodule_search_locations
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """Puts TorchMetrics' module in `sys.modules` instead, which the import system allows."""
        name = module.__name__
        require(name)
        theirs = import_module(counterpart(name))
        package, _, attribute = name.rpartition(".")
        known = getattr(sys.modules[counterpart(package)], attribute, theirs)
        if known is not theirs:
            _keep(sys.modules[package], attribute, known)
        sys.modules[name] = theirs


def _find_in_torchmetrics(module: str) -> ModuleSpec | None:
    """Like `importlib.util.find_spec`, but without importing the packages above the module."""
    spec, name = find_spec("torchmetrics"), "torchmetrics"
    for part in module.split(".")[1:]:
        if spec is None or spec.submodule_search_locations is None:
            return None
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, spec.submodule_search_locations)
    return spec


def _keep(package: ModuleType, name: str, known: object) -> None:
    """Stops the import under way from putting its module over a function of the same name.

    In TorchMetrics, the name `stat_scores` of `functional.classification` is a function: the
    package imports it from the module of that name after the import system has set the module.
    Here the import system sets the module last, and perhaps on a package of TorchMetrics' own.
    """
    kind = type(package)

    class Keeping(kind):  # type: ignore[misc, valid-type]
        def __setattr__(self, attribute: str, value: object) -> None:
            if attribute == name:
                value = known
                kind.__setattr__(self, "__class__", kind)
            kind.__setattr__(self, attribute, value)

    package.__class__ = Keeping


_FINDER = TorchMetricsFinder()


def install() -> None:
    """Makes imports such as ``import syncfree.text`` work."""
    # Drops the finder of an earlier import of syncfree that has been removed from `sys.modules`:
    # two finders would ask each other forever.
    others = [each for each in sys.meta_path if type(each).__qualname__ != "TorchMetricsFinder"]
    sys.meta_path[:] = [_FINDER, *others]
