"""Runs a script, a module or a function as the interpreter itself would."""

from __future__ import annotations

import ast
import atexit
import builtins
import importlib
import importlib.util
import inspect
import os
import re
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import TracebackType
from typing import Any

from syncfree.errors import SyncfreeError

_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
# The global of a script that holds the decorator of its step function.
_STEP = "__syncfree_step__"

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


class ProgramError(SyncfreeError):
    """There is no such script, module or function."""


class Program:
    """A script or a module with its arguments, or a function of a module.

    Args:
        target: Path of a script, or ``module:function``; with `is_module` a module's name.
        arguments: What follows it on the command line.
        is_module: Run it as ``python -m`` does.

    Raises:
        ProgramError: It is none of these.
    """

    def __init__(
        self, target: str, arguments: Sequence[str] = (), *, is_module: bool = False
    ) -> None:
        self.target = target
        self._arguments = list(arguments)
        self._is_module = is_module
        self._script: Path | None = None
        if is_module:
            if Path(target).is_file() or not _MODULE.fullmatch(target):
                raise ProgramError(
                    f"-m {target}: a module's name is expected, as in mypackage.train; a script "
                    "is run without -m"
                )
        elif Path(target).is_file():
            self._script = Path(target).absolute()
        elif not _FUNCTION.fullmatch(target):
            raise ProgramError(
                f"{target} is neither a script that exists nor module:function, as in "
                "mypackage.train:main; a module is run by -m mypackage.train"
            )
        elif ".py:" in target:
            raise ProgramError(
                f"{target}: modules are named without .py, as in {target.replace('.py:', ':')}"
            )

    def run(self, step_function: str | None = None, wrap_step: Wrap = lambda each: each) -> Any:
        """Runs it to its end; its exceptions pass through.

        Args:
            step_function: A function that ends a step, as ``module:function``, or a function of the
                script by its name alone.
            wrap_step: Gets that function and returns its replacement.

        Raises:
            ProgramError: The function, or the step function, is not there.
        """
        with (
            _as_interpreter([self.target, *self._arguments], self._script),
            self._stepping(step_function, wrap_step) as step_in_script,
        ):
            if self._is_module:
                return _run_module(self.target, step_in_script, wrap_step)
            if self._script is None:
                return resolve(self.target)()
            return _run_script(self._script, step_in_script, wrap_step)

    @contextmanager
    def _stepping(self, step_function: str | None, wrap: Wrap) -> Iterator[str | None]:
        if step_function is None:
            yield None
            return
        module, _, name = step_function.rpartition(":")
        own = self._script.stem if self._script is not None else self.target
        is_own = module in ("", "__main__", own)
        if is_own and (self._is_module or self._script is not None):
            yield name
            return
        if not module:
            raise ProgramError(
                f"--step-function {step_function}: of a program that is a function it needs its "
                "module, as in mypackage.train:step"
            )
        original = resolve(step_function)
        if not callable(original):
            kind = type(original).__name__
            raise ProgramError(
                f"--step-function {step_function}: this is no function, but a {kind}"
            )
        path, _, last = name.rpartition(".")
        owner = resolve(f"{module}:{path}") if path else importlib.import_module(module)
        # From a class, the attribute as written, not as bound: a static method stays one.
        written = inspect.getattr_static(owner, last, original)
        is_wrapped = isinstance(owner, type) and isinstance(written, (staticmethod, classmethod))
        is_own = last in vars(owner)
        setattr(owner, last, wrap(written if is_wrapped else original))
        try:
            yield None
        finally:
            if is_own:
                setattr(owner, last, written)
            else:
                delattr(owner, last)


@contextmanager
def _as_interpreter(arguments: list[str], script: Path | None) -> Iterator[None]:
    """`sys.argv`, `sys.path` and `__main__` as `python script.py` and `python -m` have them."""
    argv, path, main = sys.argv, list(sys.path), sys.modules["__main__"]
    sys.argv = arguments
    sys.path.insert(0, str(script.resolve().parent if script is not None else Path.cwd()))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path
        sys.modules["__main__"] = main


def _run_script(script: Path, step: str | None, wrap: Wrap) -> None:
    _run(script.read_bytes(), {"__file__": str(script)}, step, wrap)


def _run_module(name: str, step: str | None, wrap: Wrap) -> None:
    """As `runpy` does for `python -m`; runpy cannot run source that the step decorator changed."""
    spec, source = _find_module(name)
    attributes = {
        "__file__": spec.origin,
        "__cached__": spec.cached,
        "__loader__": spec.loader,
        "__package__": spec.parent,
        "__spec__": spec,
    }
    sys.argv[0] = str(spec.origin)
    _run(source, attributes, step, wrap)


def _run(source: str | bytes, attributes: dict[str, Any], step: str | None, wrap: Wrap) -> None:
    _clear_last()
    main = types.ModuleType("__main__")
    _last.append(main)
    main.__dict__.update(attributes, __builtins__=builtins)
    file = attributes["__file__"]
    if step is None:
        code = compile(source, file, "exec", dont_inherit=True)
    else:
        tree = ast.parse(source, file)
        definition = _find(tree.body, step.split("."))
        if definition is None:
            raise ProgramError(f"--step-function {step}: {file} defines no function of this name")
        # The outermost decorator: the script calls what its own decorators make of the function.
        mark = ast.copy_location(ast.Name(_STEP, ast.Load()), definition)
        definition.decorator_list.insert(0, mark)
        main.__dict__[_STEP] = wrap
        code = compile(tree, file, "exec", dont_inherit=True)
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


_last: list[types.ModuleType] = []


@atexit.register  # before the program registers its own functions, which therefore run earlier
def _clear_last() -> None:
    """Clears a program's globals as the interpreter does at exit.

    Left to the garbage collector, an open file would lose what it has not written.
    """
    while _last:
        values = vars(_last.pop())
        for name in [name for name in values if name != "__builtins__"]:
            values[name] = None


def _find_module(name: str) -> tuple[ModuleSpec, str]:
    """The module of this name, or the `__main__` of a package, with its source."""
    with _missing_named(f"-m {name}", name):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
            if spec is None:
                raise ProgramError(
                    f"-m {name}: it is a package without a __main__ module; name one of its modules"
                )
    if spec is None:
        raise ProgramError(f"-m {name}: there is no module {name}")
    source = spec.loader.get_source(spec.name) if isinstance(spec.loader, InspectLoader) else None
    if source is None:
        raise ProgramError(f"-m {name}: it has no Python source that could be run")
    return spec, source


@contextmanager
def _missing_named(what: str, module: str) -> Iterator[None]:
    """Reports the missing module that was asked for; one that the program imports is its error."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ProgramError(f"{what}: there is no module {error.name}") from None


def _find(
    body: Sequence[ast.stmt], names: Sequence[str]
) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    for each in body:
        if isinstance(each, ast.ClassDef) and len(names) > 1 and each.name == names[0]:
            return _find(each.body, names[1:])
        is_function = isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
        if is_function and [each.name] == list(names):  # type: ignore[attr-defined]
            return each  # type: ignore[return-value]
    return None


def resolve(target: str, module: types.ModuleType | None = None) -> Any:
    """The object of a ``place:path``; the place is a module to import, unless one is given.

    Raises:
        ProgramError: There is no such module, or nothing of that name in it.
    """
    place, _, path = target.rpartition(":")
    found: Any = module
    if module is None:
        with _missing_named(target, place):
            found = importlib.import_module(place)
    for name in path.split("."):
        if not hasattr(found, name):
            raise ProgramError(f"{target}: {place} has no {path}")
        found = getattr(found, name)
    return found


def show_error(error: BaseException) -> None:
    """Shows an exception of the program with the traceback that it would have had alone."""
    here = f"{Path(__file__).parent.parent.parent}{os.sep}"
    frames: TracebackType | None = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(here):
        frames = frames.tb_next
    sys.excepthook(type(error), error.with_traceback(frames), frames)
