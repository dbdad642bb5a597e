"""Finds the function that a command line names."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from syncfree.cli.syncs.program import resolve
from syncfree.errors import BenchmarkError


def load_function(target: str) -> Callable[..., Any]:
    """The function of ``script.py:function`` or ``module:function``.

    A script is run as a module: code below ``if __name__ == "__main__"`` does not run.

    Args:
        target: A path or a module's name, a colon, and a name, which may have dots.

    Raises:
        BenchmarkError: It names no function, or one that needs arguments, or there is no such
            script.
        ProgramError: There is no such module, or nothing of that name in it.
    """
    place, colon, path = target.rpartition(":")
    if not colon or not place or not path:
        raise BenchmarkError(
            f"{target} is neither script.py:function nor module:function, as in model.py:step"
        )
    script = _script(Path(place)) if place.endswith(".py") else None
    if script is None and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    found = resolve(target, script)
    if not callable(found):
        raise BenchmarkError(f"{target} is no function, but {type(found).__name__}")
    function: Callable[..., Any] = found
    _require_no_arguments(target, function)
    return function


def made_function(target: str, made: Any) -> Callable[..., Any]:
    """Checks what the target returned under ``--factory``.

    Raises:
        BenchmarkError: It is no function, or one that needs arguments.
    """
    if not callable(made):
        raise BenchmarkError(
            f"with --factory {target} returns the function to measure, but it returned "
            f"{type(made).__name__}; without --factory {target} itself is measured"
        )
    function: Callable[..., Any] = made
    _require_no_arguments(f"what {target} returns", function)
    return function


def _require_no_arguments(what: str, function: Callable[..., Any]) -> None:
    try:
        # Not the signature of a wrapped function, to which its decorator may pass arguments.
        parameters = inspect.signature(function, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError, NameError):  # of C functions, or with unresolved annotations
        return
    kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in kinds]
    if needed:
        raise BenchmarkError(
            f"{what} is called without arguments, but needs {', '.join(needed)}: name a function "
            "that has them, or with --factory one that makes them and returns what is measured"
        )


def _script(file: Path) -> ModuleType:
    if not file.is_file():
        raise BenchmarkError(f"there is no script {file}")
    spec = importlib.util.spec_from_file_location(file.stem, file.absolute())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # So that it can import its neighbors, as if Python ran it, and dataclasses find their module.
    sys.path.insert(0, str(file.absolute().parent))
    sys.modules.setdefault(file.stem, module)
    # The script must not see the options of this command.
    ours, sys.argv = sys.argv, [str(file)]
    try:
        spec.loader.exec_module(module)
    finally:
        sys.argv = ours
    return module
